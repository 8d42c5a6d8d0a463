"""Grounding of requests, one at a time, in one database schema. Lowered models (join plans) are cached."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from relcrf.data.names import domain_table, relation_table
from relcrf.grounding.engines.memory import MemoryEngine
from relcrf.grounding.entity_values import features_of_templates, find_computed_values
from relcrf.grounding.estimate import DEFAULT_BUDGET
from relcrf.grounding.ground import ground
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.lower import LoweringContext
from relcrf.grounding.lowered_model import LoweredModel
from relcrf.language.render import render
from relcrf.model.expansion import expand_model
from relcrf.model.spec import DerivedRelation, ModelSpec, RandomRelation
from relcrf.model.text_similarity import text_similarities
from relcrf.serving.bound_request import BoundRequest
from relcrf.serving.cells import FastPathUnavailable
from relcrf.serving.coding import CodedRequest, Vocabulary, code_request, code_requests, join_requests
from relcrf.serving.request_table import RequestTable
from relcrf.serving.separability import is_separable, open_predicted_domains

MAX_FETCHED_ROWS = 1_000_000
"""Maximum number of rows of a result that is fetched at once; larger results are streamed."""

MAX_LOWERED_MODELS = 8
"""Maximum number of cached lowered models, one per combination of vector lengths; valid requests use one combination."""


@dataclass(frozen=True)
class RequestGroup:
    """The common grounding of several requests.

    Args:
        indices: The indices of the requests in the list that was grounded, ascending.
        sizes: The number of entities of each request, by entity type; shape (n_requests,).
    """

    indices: list[int]
    sizes: Mapping[str, np.ndarray]
    grounding: Grounding

    def request_of_variables(self) -> np.ndarray:
        """Return the position of each variable's request in `indices`; shape (n_variables,)."""
        order = np.arange(len(self.indices))
        return np.concatenate([np.repeat(order, self.sizes[block.owner]) for block in self.grounding.blocks])


class RequestGrounder:
    """A grounder of requests, one at a time; a grounding is valid until the next request is grounded.

    Args:
        vocabulary: The values of each open domain in the training data.
    """

    def __init__(self, spec: ModelSpec, vocabulary: Mapping[str, tuple[str, ...]]) -> None:
        self._spec = spec
        self._vocabulary = Vocabulary(spec, vocabulary)
        self._text = render(spec.flatten())
        self._expanded_spec = expand_model(spec)
        self._has_computed_values = bool(text_similarities(spec)) or any(
            list(find_computed_values(self._expanded_spec, owner, by))
            for owner, by in features_of_templates(self._expanded_spec)
        )
        self._open_predictions = frozenset(open_predicted_domains(spec))
        self._is_separable: bool | None = None
        """Whether several requests can be grounded at once; None until a model was lowered."""
        self._lowered_models: dict[tuple[tuple[tuple[str, str], int], ...], LoweredModel] = {}
        self._bound = BoundRequest(spec)

    def ground(self, request: Mapping[str, RequestTable]) -> Grounding:
        """Ground a request.

        Raises:
            FastPathUnavailable: The request needs the slow path: it is large, or has cells that `cells.py` does not
                support.
        """
        if self._has_computed_values:
            raise FastPathUnavailable("the model has values that are computed for all entities at once")
        tables = code_request(self._spec, self._vocabulary, request)
        lowered_model = self._lower(tables)
        rows = lowered_model.max_join_rows(self._max_row_counts(tables))
        if rows > DEFAULT_BUDGET:
            raise FastPathUnavailable("the request is large")
        return self._ground_tables(tables, lowered_model, rows)

    def ground_together(self, requests: Sequence[Mapping[str, RequestTable]]) -> RequestGroup | None:
        """Ground several requests at once, whose factors are those of the requests grounded alone.

        Requests are left out if they need the slow path, or if their columns have other types than most. The result is None
        if fewer than two requests remain, or if factors could depend on two requests (see `separability.py`).
        """
        if self._has_computed_values or self._is_separable is False:
            return None
        coded: dict[int, CodedRequest] = {}
        for index, tables in enumerate(code_requests(self._spec, self._vocabulary, requests)):
            if isinstance(tables, CodedRequest) and not self._has_new_states(tables):
                coded[index] = tables
        if not coded:
            return None
        lowered_model = self._lower(next(iter(coded.values())))
        if self._is_separable is None:
            self._is_separable = is_separable(self._expanded_spec, lowered_model)
        ((types, _),) = Counter(tables.column_types for tables in coded.values()).most_common(1)
        rows = {k: lowered_model.max_join_rows(self._max_row_counts(tables)) for k, tables in coded.items()}
        joined = [k for k, tables in coded.items() if tables.column_types == types and rows[k] <= DEFAULT_BUDGET]
        if not self._is_separable or len(joined) < 2:
            return None
        parts = [coded[k] for k in joined]
        sizes = {e.name: np.array([part.sizes[e.name] for part in parts]) for e in self._spec.entities}
        n_rows = sum(rows[k] for k in joined)
        return RequestGroup(joined, sizes, self._ground_tables(join_requests(self._spec, parts), lowered_model, n_rows))

    def _has_new_states(self, tables: CodedRequest) -> bool:
        """Return True if a request adds states to the variables of a predicted attribute."""
        known = self._vocabulary.values
        return any(len(tables.domains[name]) > len(known[name]) for name in self._open_predictions)

    def _ground_tables(self, tables: CodedRequest, lowered_model: LoweredModel, rows: int) -> Grounding:
        """Ground coded tables.

        Args:
            rows: Upper bound of the number of rows of any join.
        """
        is_small = rows <= MAX_FETCHED_ROWS
        self._bound.assign(tables, lowered_model, is_small=is_small)
        engine = MemoryEngine(self._bound.read_column, self._bound.open_engine) if is_small else None
        return ground(self._bound, engine=engine, lowered_model=lowered_model)

    def _max_row_counts(self, tables: CodedRequest) -> dict[str, int]:
        """Return the number of rows of each table; for a derived or random relation, return the maximum number."""
        counts = {**tables.sizes, **{name: len(values) for name, values in tables.domains.items()}}
        row_counts = {domain_table(name): len(values) for name, values in tables.domains.items()}
        relations: tuple[DerivedRelation | RandomRelation, ...] = (
            *self._expanded_spec.derived_relations,
            *self._expanded_spec.random_relations,
        )
        for relation in relations:
            row_counts[relation_table(relation.name)] = math.prod(counts[p.type_name] for p in relation.parameters)
        row_counts |= {name: len(next(iter(columns.values())).values) for name, columns in tables.tables.items()}
        return row_counts | {name: len(bag["vid"]) for name, bag in tables.bags.items()}

    def _lower(self, tables: CodedRequest) -> LoweredModel:
        """Return the lowered model for a request. New values affect it only if the model's text contains them."""
        context = LoweringContext(self._expanded_spec, tables.domains, tables.vector_lengths)
        known = self._vocabulary.values
        new_values = [v for name, values in tables.domains.items() for v in values[len(known[name]) :]]
        if any(value in self._text for value in new_values):
            return LoweredModel.from_context(context)
        key = tuple(sorted(tables.vector_lengths.items()))
        if key not in self._lowered_models:
            if len(self._lowered_models) >= MAX_LOWERED_MODELS:
                self._lowered_models.clear()
            self._lowered_models[key] = LoweredModel.from_context(context)
        return self._lowered_models[key]
