"""The mega-sample: variables, factors in groups, shared weights, as flat arrays. No tables, no names, no files."""
