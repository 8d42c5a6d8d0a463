"""The ground factor graph as flat arrays: variables, factors and weights, without input tables and names."""
