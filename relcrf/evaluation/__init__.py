"""Evaluation of predictions: metrics, splits, protocols, explanations."""
