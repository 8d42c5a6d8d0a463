"""Estimators with the scikit-learn interface; they require the extra `sklearn`."""

from relcrf.data.extras import import_extra

import_extra("sklearn", "sklearn", "relcrf.estimators")

from relcrf.estimators.relational import RelationalCRF, RelationalCRFRegressor  # noqa: E402  # a missing scikit-learn is reported first
from relcrf.estimators.structured import ESSCRFClassifier  # noqa: E402

__all__ = ["ESSCRFClassifier", "RelationalCRF", "RelationalCRFRegressor"]
