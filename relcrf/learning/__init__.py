"""Objectives with exact gradients, and the optimisers that learn weights from them."""
