"""relcrf: relational conditional random fields on tables. One model file, many backends.

The public names are imported on first use, which keeps `import relcrf` fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relcrf import datasets
    from relcrf.api import Fit, Model, Prediction, load, load_fit, parse
    from relcrf.data.dataset import Dataset
    from relcrf.errors import ConvergenceError, DataError, ModelError, RelcrfError, UsageError
    from relcrf.estimators import ESSCRFClassifier, RelationalCRF, RelationalCRFRegressor
    from relcrf.progress_reporting import progress
    from relcrf.serving.predictor import Predictor

__version__ = "0.1.0"

_PUBLIC_MODULES = {
    **dict.fromkeys(("Fit", "Model", "Prediction", "load", "load_fit", "parse"), "relcrf.api"),
    "Dataset": "relcrf.data.dataset",
    **dict.fromkeys(("ConvergenceError", "DataError", "ModelError", "RelcrfError", "UsageError"), "relcrf.errors"),
    "Predictor": "relcrf.serving.predictor",
    "progress": "relcrf.progress_reporting",
    **dict.fromkeys(("ESSCRFClassifier", "RelationalCRF", "RelationalCRFRegressor"), "relcrf.estimators"),
}

_SUBPACKAGES = ("datasets",)
"""Subpackages that are imported on first access."""

__all__ = [
    "ConvergenceError",
    "DataError",
    "Dataset",
    "ESSCRFClassifier",
    "Fit",
    "Model",
    "ModelError",
    "Prediction",
    "Predictor",
    "RelationalCRF",
    "RelationalCRFRegressor",
    "RelcrfError",
    "UsageError",
    "datasets",
    "load",
    "load_fit",
    "parse",
    "progress",
]


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES:
        return import_module(f"relcrf.{name}")
    if name not in _PUBLIC_MODULES:
        raise AttributeError(f"module 'relcrf' has no attribute '{name}'")
    return getattr(import_module(_PUBLIC_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(["__version__", *__all__])
