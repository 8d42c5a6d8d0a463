"""The ground factor graph as flat arrays: variables, groups of factors and shared weights, without input tables and names."""
