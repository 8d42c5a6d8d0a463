"""Small example datasets, which are generated on demand without network access or external files.

import relcrf

model, data = relcrf.datasets.load("web")
model.evaluate(data)
"""

from relcrf.datasets.examples import Example, load, names, write

__all__ = ["Example", "load", "names", "write"]
