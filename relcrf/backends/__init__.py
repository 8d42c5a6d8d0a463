"""The systems by name: each says which structure, objective, optimiser and inference it puts together."""
