"""Estimators of scikit-learn; they need the extra `sklearn`."""

from relcrf.data.extras import import_extra

import_extra("sklearn", "sklearn", "relcrf.estimators")

from relcrf.estimators.relational import RelationalCRF  # noqa: E402  # what misses scikit-learn is told first
from relcrf.estimators.structured import ESSCRFClassifier  # noqa: E402

__all__ = ["ESSCRFClassifier", "RelationalCRF"]
