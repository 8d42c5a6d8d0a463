"""Storage of trained learned features without pickle: estimators in files of skops, the other fields as JSON.

A file of skops contains names of classes, so that loading it runs code of these classes. relcrf loads only files whose
classes are known to contain nothing but data. The file contains the weights of a neural network instead of its classes.
"""

from __future__ import annotations

import io
import json
import warnings
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from importlib.metadata import version
from itertools import count
from typing import Any

from relcrf.errors import DataError, Diagnostic, RelcrfError, UsageError, listing
from relcrf.json_values import from_json_value
from relcrf.unaries.encoding import Encoder
from relcrf.unaries.estimators import EstimatorSpec, package_name, plugin_class_names, require_scikit_learn
from relcrf.unaries.fitting import FittedEstimator, FittedFeature
from relcrf.unaries.neural_nets import from_arrays, is_network, to_arrays

_DATA_TYPES = frozenset(
    {
        "collections.OrderedDict",
        "functools.partial",
        "lightgbm.basic.Booster",
        "lightgbm.sklearn.LGBMClassifier",
        "lightgbm.sklearn.LGBMRegressor",
        "numpy.dtype",
        "scipy.sparse._csc.csc_matrix",
        "scipy.sparse._csr.csr_matrix",
        "sklearn._loss.loss.HalfTweedieLossIdentity",
        "sklearn.calibration._CalibratedClassifier",
        "sklearn.calibration._SigmoidCalibration",
        "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
        "sklearn.gaussian_process._gpc._BinaryGaussianProcessClassifierLaplace",
        "sklearn.gaussian_process.kernels.ConstantKernel",
        "sklearn.gaussian_process.kernels.Product",
        "sklearn.gaussian_process.kernels.RBF",
        "sklearn.metrics._dist_metrics.EuclideanDistance64",
        "sklearn.neighbors._kd_tree.KDTree",
        "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
        "sklearn.tree._tree.Tree",
        "sklearn.utils.validation.check_array",
        "xgboost.core.Booster",
        "xgboost.sklearn.XGBClassifier",
        "xgboost.sklearn.XGBRegressor",
    }
)
"""Classes that contain only data, and `partial` of a function without side effects, in addition to the classes that skops
itself trusts. They occur in the estimators of scikit-learn 1.9, LightGBM 4 and XGBoost 3."""

_ZIP_TIME = (1980, 1, 1, 0, 0, 0)
"""Time of all members of a file of skops, so that equal estimators have equal files."""


def file_name(feature: str) -> str:
    """Return the name of the file with the estimator of a learned feature in a run folder."""
    return f"feature.{feature}.skops"


def dump_estimator(fitted: FittedFeature) -> bytes:
    """Return the content of the file with the transformers and the estimator; equal estimators have equal files.

    Raises:
        UsageError: if the estimator cannot be stored without pickle, or not be loaded safely (E440).
    """
    import skops.io

    hint = "choose another estimator after 'using'"
    try:
        content = skops.io.dumps(
            [
                {
                    "transformers": list(each.encoder.transformers),
                    "model": to_arrays(each.model) if is_network(each.model) else each.model,
                }
                for each in fitted.members
            ]
        )
    except Exception as error:  # skops raises the exceptions of the objects that it inspects
        message = f"the estimator '{fitted.summary['estimator']}' of '{fitted.name}' cannot be stored without pickle"
        note = f"{type(error).__name__}: {error}"
        raise UsageError(Diagnostic("E440", message, hint=hint, notes=(note,))) from error
    if unsafe := _unsafe_types(content):
        message = f"the estimator '{fitted.summary['estimator']}' of '{fitted.name}' could not be loaded safely"
        raise UsageError(Diagnostic("E440", message, hint=hint, notes=(f"it contains {listing(unsafe)}",)))
    return _normalise(content)


def _unsafe_types(content: bytes) -> list[str]:
    import skops.io

    trusted = _DATA_TYPES | plugin_class_names()
    return sorted(set(skops.io.get_untrusted_types(data=content)) - trusted)


def _normalise(content: bytes) -> bytes:
    """Return a file of skops with numbers from 1 instead of memory addresses, and without times."""
    numbers: dict[int, int] = {}
    following = count(1)

    def number(address: int) -> int:
        if address not in numbers:
            numbers[address] = next(following)
        return numbers[address]

    def rename(file: str) -> str:
        address, dot, suffix = file.partition(".")
        return f"{number(int(address))}{dot}{suffix}" if address.isdigit() else file

    def walk(node: Any) -> Any:
        if isinstance(node, dict):
            plain = {key: walk(value) for key, value in node.items()}
            if isinstance(node.get("__id__"), int):
                plain["__id__"] = number(node["__id__"])
            if isinstance(node.get("file"), str):
                plain["file"] = rename(node["file"])
            return plain
        return [walk(each) for each in node] if isinstance(node, list) else node

    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as target:
        schema = json.dumps(walk(json.loads(source.read("schema.json"))))
        members = {rename(name): source.read(name) for name in source.namelist() if name != "schema.json"}
        for name, data in sorted(members.items()):
            target.writestr(zipfile.ZipInfo(name, _ZIP_TIME), data)
        target.writestr(zipfile.ZipInfo("schema.json", _ZIP_TIME), schema)
    return out.getvalue()


def to_json(fitted: FittedFeature) -> dict[str, Any]:
    """Return the fields of a learned feature that are not in its file of skops, and the versions of the packages."""
    packages = {"scikit-learn", *(package_name(each.spec, each.model) for each in fitted.members)}
    if any(is_network(each.model) for each in fitted.members):
        packages |= {"skorch", "torch"}
    return {
        "name": fitted.name,
        "kind": fitted.kind,
        "members": [_member_to_json(each) for each in fitted.members],
        "categories": fitted.categories,
        "is_vector": fitted.is_vector,
        "temperature": fitted.temperature,
        "summary": fitted.summary,
        "versions": {name: version(name) for name in sorted(packages)},
    }


def _member_to_json(member: FittedEstimator) -> dict[str, Any]:
    encoder = member.encoder
    return {
        "estimator": asdict(member.spec),
        "n_labels": member.n_labels,
        "is_linear": encoder.is_linear,
        "kinds": encoder.kinds,
        "widths": encoder.widths,
        "scales": encoder.scales,
    }


def _spec_from_json(plain: Mapping[str, Any]) -> EstimatorSpec:
    return EstimatorSpec(str(plain["estimator"]["name"]), dict(plain["estimator"]["parameters"]))


def _member_from_json(plain: Mapping[str, Any], loaded: Mapping[str, Any]) -> FittedEstimator:
    encoder = Encoder(
        bool(plain["is_linear"]),
        from_json_value(tuple[str, ...], plain["kinds"]),
        from_json_value(tuple[int, ...], plain["widths"]),
        from_json_value(tuple[float, ...], plain["scales"]),
        tuple(loaded["transformers"]),
    )
    return FittedEstimator(_spec_from_json(plain), encoder, loaded["model"], int(plain["n_labels"]))


def from_json(plain: Mapping[str, Any], content: bytes) -> FittedFeature:
    """Return the learned feature with the fields of `to_json` and a file of skops.

    Raises:
        UsageError: if scikit-learn or skops is not installed (E437).
        DataError: if the file contains classes that are not known to be safe, or another version of a package cannot read it
            (E440).
        ValueError, KeyError, TypeError: if the fields or the file are damaged.
    """
    require_scikit_learn()
    import skops.io

    name, kind = str(plain["name"]), str(plain["kind"])
    versions = from_json_value(Mapping[str, str], plain["versions"])
    trusted = _DATA_TYPES | plugin_class_names()
    try:
        unsafe = _unsafe_types(content)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the error of another version names the versions
            loaded = [] if unsafe else skops.io.loads(content, trusted=sorted(trusted))
        for member, each in zip(plain["members"], loaded, strict=False):
            if isinstance(each["model"], dict):
                each["model"] = from_arrays(_spec_from_json(member).build(kind, 0), each["model"])
    except RelcrfError:
        raise
    except Exception as error:  # damaged files and classes of other versions raise any exception
        message = f"the estimator of the learned feature '{name}' cannot be loaded"
        written = ", ".join(f"{package} {number}" for package, number in versions.items())
        notes = (f"{type(error).__name__}: {error}", f"it was written by {written}")
        hint = "install these versions, or train again"
        raise DataError(Diagnostic("E440", message, hint=hint, notes=notes)) from error
    if unsafe:
        message = f"the estimator of the learned feature '{name}' is not loaded, because it could run code"
        hint = "train again, or restore the file from a run that you trust"
        raise DataError(Diagnostic("E440", message, hint=hint, notes=(f"it contains {listing(unsafe)}",)))
    return FittedFeature(
        name,
        kind,
        tuple(_member_from_json(*each) for each in zip(plain["members"], loaded, strict=True)),
        from_json_value(tuple[str, ...] | None, plain["categories"]),
        bool(plain["is_vector"]),
        float(plain["temperature"]),
        dict(plain["summary"]),
    )


def require_storable(features: Iterable[FittedFeature]) -> None:
    """Raise UsageError (E440) unless all learned features can be stored and loaded safely."""
    for fitted in features:
        dump_estimator(fitted)
