"""A ground graph with its way back: from factors to templates and keys, and from a variable to its factors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from relcrf.data.bound_model import BoundModel
from relcrf.data.frame import Frame
from relcrf.errors import Diagnostic, UsageError, listing, suggestion
from relcrf.graph.adjacency import unconditional_components
from relcrf.graph.factor_graph import FactorGraph, FactorGroup
from relcrf.graph.gates import Gates, LazyGates
from relcrf.grounding.bindings import (
    EMPTY,
    BindingRows,
    bindings_of_factors,
    concatenate_rows,
    count_bindings,
    find_factors,
    read_bindings,
)
from relcrf.grounding.blocks import TemplateInfo
from relcrf.grounding.candidates import CandidateSpace, ground_candidates
from relcrf.grounding.derive import make_lowering_context
from relcrf.grounding.gates import GateGrounder
from relcrf.grounding.lower import LoweredTemplate, lower_template
from relcrf.grounding.variable_names import find_variable, format_variables, read_arguments
from relcrf.grounding.variables import VariableBlock, find_block, read_argument_texts
from relcrf.kernels.distinct import distinct
from relcrf.language.render import render_expression
from relcrf.model.expressions import Attribute
from relcrf.model.spec import ModelSpec
from relcrf.text.html_table import html_table

MAX_CACHED_NAMES = 10_000
"""So many names are looked up at once and kept: one by one, each would be a query."""


@dataclass(frozen=True, repr=False)
class Grounding:
    """A ground graph with its way back.

    Args:
        states: of each variable in the data, shape (n_variables,), int32; -1 where missing.
        templates: one for each block of weights.
        group_names: the template of each group of the graph. One whose formula looks at evidence has a group for each
            case of the evidence that does not decide the formula, so perhaps none.
        bindings: of each template, by name.
        domains: the values of every domain, in the order of the codes.
        gate_grounder: grounds the gates when they are first read.
    """

    spec: ModelSpec
    bound: BoundModel
    graph: FactorGraph
    blocks: tuple[VariableBlock, ...]
    states: np.ndarray
    templates: tuple[TemplateInfo, ...]
    group_names: tuple[str, ...]
    bindings: Mapping[str, int]
    domains: Mapping[str, tuple[str, ...]]
    gate_grounder: GateGrounder

    def __repr__(self) -> str:
        factors = sum(group.n_factors for group in self.graph.groups)
        return f"Grounding({self.graph.n_variables:,} variables, {factors:,} factors of {listing(self.bindings)})"

    def _repr_html_(self) -> str:
        sizes = dict.fromkeys(self.bindings, 0)
        for name, group in zip(self.group_names, self.graph.groups, strict=True):
            sizes[name] += group.n_factors
        variables = [(b.name, b.count, int((self.states[b.start : b.start + b.count] >= 0).sum())) for b in self.blocks]
        templates = [(name, count, sizes[name]) for name, count in self.bindings.items()]
        first = html_table(("predicted", "variables", "known"), variables, caption=repr(self))
        return first + html_table(("template", "bindings", "factors"), templates)

    def find_block(self, variable: int) -> VariableBlock:
        """The block that a variable belongs to."""
        return next(b for b in self.blocks if b.start <= variable < b.start + b.count)

    @cached_property
    def latent(self) -> np.ndarray:
        """Which variables are never observed, shape (n_variables,), bool."""
        return np.repeat([b.is_latent for b in self.blocks], [b.count for b in self.blocks]).astype(bool)

    @cached_property
    def candidates(self) -> tuple[CandidateSpace, ...]:
        """The spaces that the model's candidates are from; what is chosen of them, `with_candidates` makes factors of.

        Raises:
            BudgetError: where one side of a space is beyond the usual budget.
            UsageError: where candidates are no pairs of literals.
        """
        return ground_candidates(self.bound, self.blocks)

    @cached_property
    def _gates(self) -> tuple[Gates, tuple[TemplateInfo, ...]]:
        return self.gate_grounder.ground(self.graph, self.templates, self.group_names)

    @property
    def gates(self) -> Gates:
        """The gates on its factors over two variables, grounded when they are first read.

        Raises:
            DataError: where a feature of theirs is not finite.
        """
        return self._gates[0]

    @property
    def gate_templates(self) -> tuple[TemplateInfo, ...]:
        """What the weights of the gates mean, one for each block of their layout. For errors see `gates`."""
        return self._gates[1]

    @cached_property
    def lazy_gates(self) -> LazyGates:
        """The gates for who may not need them."""
        return LazyGates(lambda: self.gates)

    @cached_property
    def component(self) -> np.ndarray:
        """The lowest variable of each one's component where nothing is known, shape (n_variables,), int32: of what factors join,
        or candidates may join. For errors see `candidates`.
        """
        return unconditional_components(self.graph, [space.pairs for space in self.candidates])

    def with_candidates(self, chosen_keys: Mapping[str, tuple[tuple[str, ...], ...]]) -> Grounding:
        """The same with some candidates as templates: for each name of candidates the keys, in the order of `per`."""
        graph, templates, names, bindings = self.graph, self.templates, self.group_names, dict(self.bindings)
        for space in self.candidates:
            if space.pairs.name not in chosen_keys:
                continue
            made = space.make_block(chosen_keys[space.pairs.name], len(graph.layout.blocks))
            graph = graph.with_groups(made.groups, made.weights)
            templates, names = (*templates, made.info), (*names, *made.group_names)
            bindings.update(made.bindings)
        return replace(self, graph=graph, templates=templates, group_names=names, bindings=bindings)

    @cached_property
    def _argument_cache(self) -> dict[str, list[np.ndarray]]:
        return {}

    def argument_texts(self, block: VariableBlock) -> list[np.ndarray]:
        """The keys and values that tell a block's variables apart, as text: a column for each of `block.sorts`."""
        if block.name not in self._argument_cache:
            self._argument_cache[block.name] = read_argument_texts(self.bound, block)
        return self._argument_cache[block.name]

    def variable_name(self, variable: int) -> str:
        """A variable as people name it: `Page(12).category`, `Smokes(anna)`."""
        if self.graph.n_variables <= MAX_CACHED_NAMES:
            return str(self._variable_names[variable])
        return str(self.variable_names(np.array([variable]))[0])

    @cached_property
    def _variable_names(self) -> np.ndarray:
        return self.variable_names(np.arange(self.graph.n_variables))

    def variable_names(self, variables: np.ndarray) -> np.ndarray:
        """The names of some variables, shape (n,), object."""
        return format_variables(self.bound, self.blocks, variables)

    def find_variable(self, text: str) -> int:
        """The variable that people name so. A key may stand in quotes.

        Raises:
            UsageError: where there is none, or where several could be meant.
        """
        return find_variable(self.bound, self.blocks, text)

    def groups(self, template: str) -> list[FactorGroup]:
        """The groups of the graph that a template has grounded into.

        Raises:
            UsageError: where no template of that name was grounded.
        """
        if template not in self.bindings:
            message = f"there is no template '{template}'"
            if any(t.name == template for t in self.spec.templates if t.is_candidate):
                message = f"'{template}' are candidates, which are not grounded"
            hint = suggestion(template, self.bindings) or f"the templates are {listing(self.bindings)}"
            raise UsageError(Diagnostic("E316", message, hint=hint))
        return [g for name, g in zip(self.group_names, self.graph.groups, strict=True) if name == template]

    def count_instances(self, template: str) -> int:
        """How many rows `instances` has of a template.

        Raises:
            UsageError: where no template of that name was grounded.
        """
        groups = self.groups(template)
        width = max(1, len(self._lowered[template].features))
        return sum(count_bindings(group.features, width) for group in groups)

    def instances(self, template: str, start: int = 0, limit: int | None = None) -> Frame:
        """What a template has grounded into: a row for each binding; over one variable and without keys, for each variable.

        Columns are, each under its spelling in the model: the keys of the things in `over`; the states of its variables in
        the data, None where missing; the keys of `per`; and the values of the features, `1` being the constant.

        Args:
            start: the first row to give, from 0.
            limit: the most rows to give; None gives all that follow.

        Raises:
            UsageError: where no template of that name was grounded.
        """
        groups, lowered = self.groups(template), self._lowered[template]
        names = lowered.feature_names or ("1",)
        parts = []
        for group in groups:
            count = count_bindings(group.features, len(names))
            stop = count if limit is None else min(start + limit, count)
            parts.append(read_bindings(group, np.arange(min(start, count), stop), len(names)))
            start = max(0, start - count)
            limit = None if limit is None else limit - len(parts[-1])
        rows = concatenate_rows(parts, len(lowered.terms), len(names))
        columns: dict[str, np.ndarray] = {}
        places = list(zip(self._scope_arguments(lowered), lowered.terms, rows.scope, strict=True))
        for (block, arguments), _, variables in places:
            for name, texts in zip(arguments, read_arguments(self.bound, block, variables), strict=True):
                columns.setdefault(name, texts)
        for (block, _), term, variables in places:
            columns[render_expression(term)] = np.asarray([*block.values, None], dtype=object)[self.states[variables]]
        # What stands in `over` and is a key or a feature as well stands here once.
        for name, texts in zip(_key_names(lowered), self._key_texts(lowered, rows.keys), strict=True):
            columns.setdefault(name, texts)
        for name, values in zip(names, rows.values.T, strict=True):
            columns.setdefault(name, values)
        return Frame(columns)

    def factors(self, variable: int | str) -> Frame:
        """All factors that touch a variable: a row for each binding and each of its features.

        Columns: `template`; `scope`, the variables of the factor; `key` of `per`; `feature`, `1` being the constant; `value`.

        Args:
            variable: its number, or as people name it.

        Raises:
            UsageError: where there is no such variable.
        """
        index = self.find_variable(variable) if isinstance(variable, str) else variable
        if not 0 <= index < self.graph.n_variables:
            hint = f"they are numbered from 0 to {self.graph.n_variables - 1}"
            raise UsageError(Diagnostic("E313", f"there is no variable {index}", hint=hint))
        found = [(name, rows) for name, rows in self._iter_bindings(index) if len(rows)]
        seen = distinct(np.concatenate([[index], *(variables for _, rows in found for variables in rows.scope)]))
        names = format_variables(self.bound, self.blocks, seen)
        texts: dict[str, list[np.ndarray]] = {name: [] for name in ("template", "scope", "key", "feature")}
        for template, rows in found:
            lowered = self._lowered[template]
            features = np.asarray(lowered.feature_names or ("1",), dtype=object)
            scope = [names[np.searchsorted(seen, variables)] for variables in rows.scope]
            texts["template"].append(np.full(rows.values.size, template, dtype=object))
            texts["scope"].append(np.repeat(_join_texts(scope, len(rows)), len(features)))
            texts["key"].append(np.repeat(_join_texts(self._key_texts(lowered, rows.keys), len(rows)), len(features)))
            texts["feature"].append(np.tile(features, len(rows)))
        columns = {name: np.concatenate([np.empty(0, dtype=object), *parts]) for name, parts in texts.items()}
        return Frame({**columns, "value": np.concatenate([np.empty(0), *(rows.values.ravel() for _, rows in found)])})

    def _iter_bindings(self, variable: int) -> Iterator[tuple[str, BindingRows]]:
        """For each group its template and the bindings whose factors touch a variable."""
        own = self.find_block(variable)
        for template, group in zip(self.group_names, self.graph.groups, strict=True):
            lowered = self._lowered[template]
            width = max(1, len(lowered.features))
            places = [k for k, (block, _) in enumerate(self._scope_arguments(lowered)) if block == own]
            factors = distinct(np.concatenate([EMPTY, *(find_factors(group.scope, k, variable) for k in places)]))
            yield template, read_bindings(group, bindings_of_factors(group.features, factors, width), width)

    @cached_property
    def _lowered(self) -> dict[str, LoweredTemplate]:
        facts = make_lowering_context(self.bound)
        return {t.name: lower_template(t, facts) for t in facts.spec.templates if t.name in self.bindings}

    def _key_texts(self, lowered: LoweredTemplate, keys: np.ndarray) -> list[np.ndarray]:
        """What some codes of `per` stand for: for each of its keys a column, shape (n,), object."""
        info = next(info for info in self.templates if info.name == lowered.template.weights)
        if info.keys is None:
            return []
        distinct, place = np.unique(keys, return_inverse=True)
        texts = np.array([info.keys.values[key] for key in distinct.tolist()], dtype=object)
        return [column[place] for column in texts.reshape(len(distinct), len(lowered.keys)).T]

    def _scope_arguments(self, lowered: LoweredTemplate) -> list[tuple[VariableBlock, tuple[str, ...]]]:
        """For each place of a template's scope the block of its variables, and how its arguments are spelt."""
        found: list[tuple[VariableBlock, tuple[str, ...]]] = []
        for term in lowered.terms:
            arguments = (term.binder,) if isinstance(term, Attribute) else tuple(map(render_expression, term.arguments))
            found.append((find_block(term, lowered.scope, self.blocks), arguments))
        return found


def _key_names(lowered: LoweredTemplate) -> list[str]:
    """How the keys of a template are spelt; the value of a bag in `by` is called by its domain."""
    return [render_expression(key) for key in lowered.template.per] or [str(key.value_type) for key in lowered.keys]


def _join_texts(columns: Sequence[np.ndarray], count: int) -> np.ndarray:
    """The texts of each row as one, shape (count,), object; empty where there are no columns."""
    rows = zip(*columns, strict=True) if columns else [()] * count
    return np.fromiter((", ".join(row) for row in rows), dtype=object, count=count)
