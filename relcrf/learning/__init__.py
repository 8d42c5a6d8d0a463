"""Which weights: objectives with exact gradients, and optimisers."""
