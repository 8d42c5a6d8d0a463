"""Data to try things on: small, made on the spot, without a network and without files of others.

import relcrf

model, data = relcrf.datasets.load("web")
model.evaluate(data)
"""

from relcrf.datasets.examples import Example, load, names, write

__all__ = ["Example", "load", "names", "write"]
