"""Training objectives, and optimisers for these objectives."""
