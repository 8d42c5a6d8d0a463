"""A model with learned weights, and the transfer of weights from the training data to other data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from relcrf.backends.base import AbstractBackend
from relcrf.backends.calibration_labels import CalibrationLabels
from relcrf.backends.domains import domain_blocks, variable_domains
from relcrf.backends.number_model import INDEPENDENT, LINKED, RULE, RULE_SETTINGS
from relcrf.backends.registry import make_backend
from relcrf.backends.template_statistics import TemplateStatistics
from relcrf.data.distributions import ColumnDistribution
from relcrf.data.readers.base import StoredFormat
from relcrf.errors import DataError, Diagnostic, UsageError, listing
from relcrf.graph.numeric_graph import discrete_part
from relcrf.graph.weights import WeightBlock, WeightLayout
from relcrf.grounding.blocks import TemplateInfo
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.patterns import NUMBER_PATTERNS
from relcrf.learning.histogram import Histogram
from relcrf.learning.moments import Moments
from relcrf.model.spec import ModelSpec, OpenDomain
from relcrf.structure.pair_unaries import own_unaries
from relcrf.unaries.fitting import FittedFeature


@dataclass(frozen=True)
class WeightSchema:
    """A weight layout, and the templates, keys and features to which the weights belong."""

    layout: WeightLayout
    templates: tuple[TemplateInfo, ...]


def _gate_schema(grounding: Grounding) -> WeightSchema:
    return WeightSchema(grounding.gates.layout, grounding.gate_templates)


def _pair_unaries_schema(grounding: Grounding) -> WeightSchema:
    """Return the schema of the unary weights of pairs; the keys are those of the pairs."""
    blocks = own_unaries(grounding.graph)
    templates = []
    for own in blocks:
        pair, unary = grounding.templates[own.pair], grounding.templates[own.unary]
        bindings = min(pair.bindings, unary.bindings)
        templates.append(replace(unary, name=own.weights.name, keys=pair.keys, bindings=bindings))
    return WeightSchema(WeightLayout(tuple(own.weights for own in blocks)), tuple(templates))


def _class_frequencies_schema(grounding: Grounding) -> WeightSchema:
    """Return the schema of one number per state of each domain; the template of a domain has its first block's name."""
    blocks, templates = [], []
    for members in domain_blocks(grounding.blocks):
        name, values = members[0].name, members[0].values
        blocks.append(WeightBlock(name, 1, len(values)))
        templates.append(TemplateInfo(name, ("1",), tuple(values), None, bindings=1))
    return WeightSchema(WeightLayout(tuple(blocks)), tuple(templates))


def _numbers_schema(grounding: Grounding) -> WeightSchema:
    """Return the schema of the mean and the log precision of each predicted number, to which the templates add."""
    blocks = [block for block in grounding.blocks if block.is_numeric]
    layout = WeightLayout(tuple(WeightBlock(block.name, 1, len(NUMBER_PATTERNS)) for block in blocks))
    return WeightSchema(layout, tuple(TemplateInfo(block.name, ("1",), NUMBER_PATTERNS, None, 1) for block in blocks))


def _number_forest_schema(grounding: Grounding) -> WeightSchema:
    """Return the schema of the settings of the rule that selects a forest of numbers."""
    layout = WeightLayout((WeightBlock(RULE, 1, len(RULE_SETTINGS)),))
    return WeightSchema(layout, (TemplateInfo(RULE, ("1",), RULE_SETTINGS, None, 1),))


SEPARATE_LAYOUTS: Mapping[str, Callable[[Grounding], WeightSchema]] = {
    "gates": _gate_schema,
    "pair_unaries": _pair_unaries_schema,
    "class_frequencies": _class_frequencies_schema,
    LINKED: _numbers_schema,
    INDEPENDENT: _numbers_schema,
    RULE: _number_forest_schema,
}
"""Functions that return the schema of a vector, for the names of vectors that do not have the layout of the weights."""


SCORE_VECTORS = ("gain", "information", "label_information", "selected_fraction", "support")
"""Names of vectors with a score for each weight; a key that training did not see has the score 0, whatever its initial weight."""


def separate_schemas(vectors: Iterable[str], grounding: Grounding) -> dict[str, WeightSchema]:
    """Return the schemas of the named vectors that have a separate layout."""
    return {name: SEPARATE_LAYOUTS[name](grounding) for name in vectors if name in SEPARATE_LAYOUTS}


@dataclass(frozen=True)
class BackendRequest:
    """The backend that a training run was started with, and all its settings."""

    backend: str
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class LearnedModel:
    """A model with all information that prediction needs.

    Args:
        backend, settings: Name and settings of the backend; if `auto` was requested, of the backend that it chose.
        chosen_settings: The values that training chose for settings with the value `auto`.
        vectors: Weight vectors by name, of shape (layout.size,), except those in `schemas`.
        templates: The template of each block of `layout`, with the keys and features of the block's weights.
        vocabulary: The values of the open domains (domains read from the data) and the tokens of texts, in the order of
            their integer codes.
        statistics: Document frequencies, means and deviations of the training data, see `data.bound_model.BoundModel`.
        summary: Summary values of the training run; see `FitResult`.
        log: For each iteration of each stage: stage, iteration, value, gradient norm, and the number of nonzero
            weights.
        converged: Whether every optimisation has converged.
        histograms, moments: See `FitResult`.
        schemas: Schemas of the vectors that have a separate layout, by name.
        template_statistics: The factors of each template in the training problem; empty if the run folder has none.
        request: The backend and the settings of the request; None if the run folder is of an earlier version.
        trials: The candidates among which `auto` chose, as table rows; see `FitResult`. Run folders do not store the
            seconds in the rows, but in the timings.
        mapping: The section `tables` of the manifest of the training data; None if they had no manifest.
        formats: The formats with which the columns of CSV files of the training data were read.
        learned_features: The trained estimators of the learned features.
        columns: The distributions of the columns of the training data; empty if the run folder is of an earlier version.
        calibration_labels: The labels that were held out to choose settings or to calibrate, by attribute or relation.
        seconds: Training time; 0 if the model was read from a run folder.
    """

    spec: ModelSpec
    backend: str
    settings: Mapping[str, Any]
    vectors: Mapping[str, np.ndarray]
    layout: WeightLayout
    templates: tuple[TemplateInfo, ...]
    vocabulary: Mapping[str, tuple[str, ...]]
    summary: Mapping[str, Any]
    converged: bool
    log: tuple[Mapping[str, Any], ...] = field(default=())
    histograms: Mapping[str, Mapping[str, Histogram]] = field(default_factory=dict)
    chosen_settings: Mapping[str, Any] = field(default_factory=dict)
    schemas: Mapping[str, WeightSchema] = field(default_factory=dict)
    moments: Moments | None = None
    template_statistics: tuple[TemplateStatistics, ...] = ()
    statistics: Mapping[str, np.ndarray] = field(default_factory=dict)
    request: BackendRequest | None = None
    trials: tuple[Mapping[str, Any], ...] = ()
    mapping: str | None = None
    formats: tuple[StoredFormat, ...] = ()
    learned_features: tuple[FittedFeature, ...] = ()
    columns: tuple[ColumnDistribution, ...] = ()
    calibration_labels: Mapping[str, CalibrationLabels] = field(default_factory=dict)
    seconds: float = field(default=0.0, compare=False)

    @property
    def n_nonzero_weights(self) -> int:
        """The number of learned weights that are not 0, without those with fixed values."""
        return int(np.count_nonzero(self.vectors["weights"][self.layout.learnable_mask()]))

    @property
    def calibration_scale(self) -> float:
        """The factor by which calibration multiplied the learned weights; 1 without calibration."""
        return float(self.summary.get("calibration", 1.0))

    @property
    def number_offsets(self) -> dict[str, tuple[float, float]]:
        """The mean and the log precision of each predicted number, to which the weights of the templates are added."""
        name = next((name for name in (LINKED, INDEPENDENT) if name in self.schemas), None)
        if name is None:
            return {}
        rows = self.vectors[name].reshape(-1, len(NUMBER_PATTERNS)).tolist()
        return {info.name: (row[0], row[1]) for info, row in zip(self.schemas[name].templates, rows, strict=True)}

    @property
    def original_request(self) -> BackendRequest:
        """The request that repeats the training: the backend of the run if the run folder does not contain the request."""
        return self.request or BackendRequest(self.backend, self.settings)

    def configure_backend(self, **settings: Any) -> AbstractBackend:
        """Return the backend; the given settings override the settings of training.

        Raises:
            UsageError: A setting is unknown or has no effect on the predictions of this model (E304, E305).
        """
        stored = [name for name in ("edges", "min_information") if name in settings and RULE in self.vectors]
        attributes = [a for entity in self.spec.entities for a in entity.attributes if a.is_random]
        if stored and not self.spec.random_relations and all(a.is_number for a in attributes):
            message = f"setting '{stored[0]}' has no effect on predicted numbers after training"
            hint = f"train again with --set {stored[0]}=...; the run stores how links are selected"
            raise UsageError(Diagnostic("E305", message, hint=hint))
        return make_backend(self.backend, **{**self.settings, **self.chosen_settings, **settings})

    def extend_grounding(self, grounding: Grounding) -> Grounding:
        """Return the grounding with the candidates that training chose.

        Raises:
            DataError: If the weights belong to another model, for example because one folder contains files of two
                runs.
        """
        names = {t.name for t in self.spec.templates if t.is_candidate}
        chosen = {t.name: tuple(t.keys.values) for t in self.templates if t.name in names and t.keys is not None}
        extended = grounding.with_candidates(chosen) if chosen else grounding
        weight_names, model_names = ([info.name for info in infos] for infos in (self.templates, extended.templates))
        if weight_names != model_names:
            notes = (
                f"templates of the weights: {listing(weight_names) or 'none'}",
                f"templates of the model: {listing(model_names) or 'none'}",
            )
            hint = "restore model.rcrf in the run folder, or train again"
            raise DataError(
                Diagnostic("E423", "the model of the run does not match its weights", hint=hint, notes=notes)
            )
        return extended

    def vectors_for(self, grounding: Grounding) -> dict[str, np.ndarray]:
        """Return the weight vectors in the layout of another ground graph; weights of unseen keys are the prior means.

        Raises:
            DataError: If a predicted attribute has values that did not occur in training, or a feature vector
                has another length than in training.
        """
        layout = grounding.graph.layout
        # The penalty pulls a weight without training factors to its prior mean, which is 0 if none is declared or set.
        graph = replace(discrete_part(grounding.graph), known_domains=variable_domains(grounding.blocks))
        initial, no_score = self.configure_backend().prior_means(graph), np.zeros(layout.size)
        old, new = WeightSchema(self.layout, self.templates), WeightSchema(layout, grounding.templates)
        vectors = {
            name: _transfer_weights(vector, old, new, no_score if name in SCORE_VECTORS else initial)
            for name, vector in self.vectors.items()
            if name not in self.schemas
        }
        for name, known in self.schemas.items():
            found = SEPARATE_LAYOUTS[name](grounding)
            # A template without factors in the data has no weights in a separate layout.
            position = {info.name: k for k, info in enumerate(known.templates)}
            blocks = [(position[info.name], k) for k, info in enumerate(found.templates) if info.name in position]
            vectors[name] = _transfer_weights(self.vectors[name], known, found, np.zeros(found.layout.size), blocks)
        return vectors

    def count_unseen_keys(self, grounding: Grounding) -> dict[str, int]:
        """Return the number of keys without learned weights in a ground graph, by template; zeros are omitted."""
        out = {}
        for old, new in zip(self.templates, grounding.templates, strict=True):
            if old.keys and new.keys:
                out[new.name] = len(set(new.keys.values) - set(old.keys.values))
        return {name: count for name, count in out.items() if count}

    def largest_weight_change(self, earlier: LearnedModel) -> float | None:
        """Return the largest change of a weight that an earlier model of the same text also has; None if the values changed."""
        weights = self.vectors["weights"]
        old, new = WeightSchema(earlier.layout, earlier.templates), WeightSchema(self.layout, self.templates)
        try:
            common = _transfer_weights(earlier.vectors["weights"], old, new, weights)
        except DataError:
            return None
        return float(np.abs(weights - common).max(initial=0.0))


def open_domain_values(grounding: Grounding) -> dict[str, tuple[str, ...]]:
    """Return the values of the open domains of a ground graph, and the tokens of its texts by similarity."""
    values = {d.name: tuple(grounding.domains[d.name]) for d in grounding.spec.domains if isinstance(d, OpenDomain)}
    return values | grounding.bound.tokens


def _transfer_weights(
    vector: np.ndarray,
    old: WeightSchema,
    new: WeightSchema,
    default: np.ndarray,
    blocks: Sequence[tuple[int, int]] | None = None,
) -> np.ndarray:
    """Return the weights of the schema `old` in the layout of the schema `new`; `default` contains missing weights.

    Args:
        blocks: For each common template, the indices of its blocks in `old` and in `new`; None if both schemas have the
            same templates in the same order.
    """
    weights = default.copy()
    if blocks is None:
        blocks = [(k, k) for k in range(len(new.templates))]
    for source_block, block in blocks:
        old_template, new_template = old.templates[source_block], new.templates[block]
        if not new_template.bindings:
            continue  # the template has no binding in these data, so features and patterns may be unknown
        if not old_template.bindings and old_template.features != new_template.features:
            continue  # the template had no binding in training, so features were unknown
        if old_template.patterns != new_template.patterns:
            unseen = [p for p in new_template.patterns if p not in old_template.patterns]
            message = f"template '{new_template.name}' has states that did not occur in training: {listing(unseen)}"
            hint = "train on data with these values, or list the domain's values in the model"
            raise DataError(Diagnostic("E223", message, hint=hint))
        source, target = _matching_features(old_template, new_template)
        new.layout.matrix(weights, block)[target] = old.layout.matrix(vector, source_block)[source]
    return weights


def _matching_features(old: TemplateInfo, new: TemplateInfo) -> tuple[np.ndarray, np.ndarray]:
    """Return the row indices of the common features in the old and in the new weight matrix."""
    old_width, new_width = len(old.features), len(new.features)
    if old.features != (new.features[:old_width] if new.is_extensible else new.features):
        message = f"template '{new.name}' has {new_width} features in these data but had {old_width} in training"
        raise DataError(Diagnostic("E224", message, hint="use vectors of the same length in all data of a model"))
    offsets = np.arange(old_width)
    if old.keys is None or new.keys is None:
        return offsets, offsets
    n = len(old.keys.values)
    if old_width == new_width and old.keys.domain is not None and new.keys.values[:n] == old.keys.values:
        # This is the usual case, because values that occurred in training have the same codes.
        all_features = np.arange(n * old_width)
        return all_features, all_features
    new_index = {value: k for k, value in enumerate(new.keys.values)}
    pairs = [(k, new_index[value]) for k, value in enumerate(old.keys.values) if value in new_index]
    common = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return (common[:, :1] * old_width + offsets).ravel(), (common[:, 1:] * new_width + offsets).ravel()
