"""Low-latency prediction for single entities with a trained model."""

from relcrf.serving.predictor import Predictor

__all__ = ["Predictor"]
