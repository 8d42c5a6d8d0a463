"""What follows from the weights: marginals, most probable states, log partition. One method a file."""
