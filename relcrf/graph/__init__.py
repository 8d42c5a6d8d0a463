"""The ground factor graph as flat arrays: variables, groups of factors and shared weights; no input tables, no names."""
