"""A trained model that answers about single things, in milliseconds."""

from relcrf.serving.predictor import Predictor

__all__ = ["Predictor"]
