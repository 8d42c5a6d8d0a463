"""The builder of models in Python, with the same declarations and the same checker as `.rcrf` files."""

from relcrf.builder.model import ModelBuilder, bag, latent, predict, propagate, vector
from relcrf.builder.terms import fn

__all__ = ["ModelBuilder", "bag", "fn", "latent", "predict", "propagate", "vector"]
