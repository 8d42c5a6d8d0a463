"""The estimators of learned features: by default those of this module, or by name those of scikit-learn and of other packages."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any

from relcrf import plugins
from relcrf.errors import Diagnostic, Span, UsageError, listing, suggestion

ENTRY_POINT_GROUP = "relcrf.estimators"
"""The entry point group in which other packages register classes of estimators."""

_REQUIRED = {"sklearn": "scikit-learn", "skops": "skops"}
"""The packages that learned features need, by the name of the module."""

_MODULES = {
    "HistGradientBoostingClassifier": "sklearn.ensemble",
    "HistGradientBoostingRegressor": "sklearn.ensemble",
    "LogisticRegression": "sklearn.linear_model",
    "Ridge": "sklearn.linear_model",
    "LGBMClassifier": "lightgbm",
    "LGBMRegressor": "lightgbm",
    "XGBClassifier": "xgboost",
    "XGBRegressor": "xgboost",
}
"""The modules of estimators that are imported without a search of all classes of scikit-learn."""

SHORT_NAMES = ("linear", "boosting")
"""Names that stand for several candidates, whose classes depend on the target."""

_CLASSES = {
    ("boosting", "classifier"): "HistGradientBoostingClassifier",
    ("boosting", "regressor"): "HistGradientBoostingRegressor",
    ("linear", "classifier"): "LogisticRegression",
    ("linear", "regressor"): "Ridge",
}

_BOOSTING: tuple[dict[str, Any], ...] = (
    {"learning_rate": 0.05, "max_iter": 60, "max_leaf_nodes": 8, "min_samples_leaf": 10},
    {"max_iter": 100},
)

_CANDIDATES: dict[tuple[str, str], tuple[dict[str, Any], ...]] = {
    ("boosting", "classifier"): _BOOSTING,
    ("boosting", "regressor"): _BOOSTING,
    ("linear", "classifier"): tuple({"C": c, "max_iter": 1000} for c in (0.01, 0.1, 1.0, 10.0)),
    ("linear", "regressor"): tuple({"alpha": alpha} for alpha in (100.0, 10.0, 1.0, 0.1)),
}
"""The settings among which the error of out-of-fold predictions chooses, from strong to weak regularisation."""


@dataclass(frozen=True)
class EstimatorSpec:
    """The class of an estimator and its parameters.

    Args:
        name: the name of the class, or `boosting` or `linear`.
        parameters: parameters of the class that differ from its defaults.
    """

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{k}={v!r}' for k, v in self.parameters.items())})"

    def build(self, kind: str, seed: int) -> Any:
        """Return a new estimator.

        Args:
            kind: `classifier` or `regressor`.

        Raises:
            UsageError: if no installed package has the class, it is of another kind, or it does not accept the parameters.
        """
        from sklearn.base import is_classifier, is_regressor

        has_kind = is_classifier if kind == "classifier" else is_regressor
        try:
            estimator = _find_class(_CLASSES.get((self.name, kind), self.name), kind)(**self.parameters)
        except TypeError as error:
            raise UsageError(_usage_error(f"the parameters of the estimator '{self}' are invalid: {error}")) from None
        if not has_kind(estimator):
            raise UsageError(
                _usage_error(f"the estimator '{self}' is not a {kind}", f"use 'linear' or 'boosting', or a {kind}")
            )
        if "random_state" in estimator.get_params(deep=False) and "random_state" not in self.parameters:
            estimator.set_params(random_state=seed)
        return estimator


def parse_estimator(text: str, span: Span | None = None) -> EstimatorSpec:
    """Return the estimator that a model names: `boosting`, or `RandomForestClassifier(n_estimators=300)`.

    Raises:
        UsageError: if the text is not a name with literal parameters.
    """
    try:
        node = ast.parse(text, mode="eval").body
        if isinstance(node, ast.Name):
            return EstimatorSpec(node.id)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.args:
            values = {word.arg: ast.literal_eval(word.value) for word in node.keywords if word.arg is not None}
            if len(values) == len(node.keywords):
                return EstimatorSpec(node.func.id, values)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass
    hint = 'write a name, or a name with literal parameters: "RandomForestClassifier(n_estimators=300)"'
    raise UsageError(Diagnostic("E437", f"'{text}' is not the name of an estimator", span, hint))


def candidate_estimators(name: str, kind: str) -> list[EstimatorSpec]:
    """Return the candidates of `boosting` or `linear`."""
    return [EstimatorSpec(name, parameters) for parameters in _CANDIDATES[name, kind]]


def require_scikit_learn() -> None:
    """Raise UsageError if scikit-learn or skops, which stores estimators, is not installed."""
    missing = [name for package, name in _REQUIRED.items() if find_spec(package) is None]
    if missing:
        message = f"learned features need {listing(missing)}, which is not installed"
        raise UsageError(Diagnostic("E437", message, hint="install it with: pip install 'relcrf[sklearn]'"))


def package_name(spec: EstimatorSpec, model: Any) -> str:
    """Return the name of the package that contains the class of an estimator."""
    for entry in _plugin_entries():
        if entry.name == spec.name and entry.dist is not None:
            return entry.dist.name
    module = type(model).__module__.partition(".")[0]
    return {"sklearn": "scikit-learn"}.get(module, module)


def plugin_class_names() -> frozenset[str]:
    """Return the qualified names of the estimators that other packages register."""
    return frozenset(entry.value.replace(":", ".") for entry in _plugin_entries())


def _usage_error(message: str, hint: str | None = None) -> Diagnostic:
    return Diagnostic("E437", message, hint=hint or "see the documentation of the estimator's class")


def _find_class(name: str, kind: str) -> Any:
    """Return the class of an estimator by name."""
    entries = [entry for entry in _plugin_entries() if entry.name == name]
    if entries:
        return plugins.load_entry(entries[0], "E437", "estimator", _plugin_problem)
    if (module := _MODULES.get(name)) is not None:
        try:
            return getattr(import_module(module), name)
        except ImportError:
            message = f"the estimator '{name}' needs the package '{module}', which is not installed"
            raise UsageError(_usage_error(message, f"install it with: pip install {module}")) from None
    from sklearn.utils import all_estimators

    classes = dict(all_estimators(kind))
    if name in classes:
        return classes[name]
    names = [*SHORT_NAMES, *classes]
    message = f"unknown {kind} '{name}'"
    hint = suggestion(name, names) or f"use 'boosting', 'linear', or the class of a {kind} of scikit-learn"
    raise UsageError(_usage_error(message, hint))


def _plugin_entries() -> tuple[EntryPoint, ...]:
    return plugins.list_entries(entry_points, ENTRY_POINT_GROUP)


def _plugin_problem(loaded: object) -> str | None:
    return None if isinstance(loaded, type) and hasattr(loaded, "get_params") else "it is not a class of an estimator"
