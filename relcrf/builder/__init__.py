"""Models written in Python: the same declarations as a `.rcrf` file, through the same checker."""

from relcrf.builder.model import ModelBuilder, bag, latent, predict, vector
from relcrf.builder.terms import fn

__all__ = ["ModelBuilder", "bag", "fn", "latent", "predict", "vector"]
