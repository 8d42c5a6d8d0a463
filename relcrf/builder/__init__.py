"""The builder of models in Python, with the same declarations and the same checker as `.rcrf` files."""

from relcrf.builder.model import ModelBuilder, bag, classifier, latent, predict, propagate, regressor, time, vector
from relcrf.builder.terms import fn

__all__ = ["ModelBuilder", "bag", "classifier", "fn", "latent", "predict", "propagate", "regressor", "time", "vector"]
