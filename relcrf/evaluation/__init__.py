"""How good predictions are: metrics, splits, protocols."""
