"""Updates of trained runs when rows of the tables are added, removed or changed."""
