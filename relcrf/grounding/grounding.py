"""A ground graph, with mappings from factors to templates and keys and from variables to factors.

A template has the clauses `over` (random terms or a formula), `by` (features) and `per` (keys, which have separate weights).
A *binding* assigns an entity or value to each logical variable of a template.
"""

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
from relcrf.grounding.random_pairs import RandomPairs, ground_random_pairs
from relcrf.grounding.variable_names import find_variable, format_variables, read_arguments, similar_arguments
from relcrf.grounding.variables import VariableBlock, find_block, read_argument_texts, read_numbers
from relcrf.kernels.distinct import distinct
from relcrf.language.render import render_expression
from relcrf.model.expressions import Attribute
from relcrf.model.spec import ModelSpec
from relcrf.text.html_table import html_table

MAX_CACHED_NAMES = 10_000
"""Maximum number of variables whose names are read at once and cached; in larger graphs, each name is queried."""


@dataclass(frozen=True, repr=False)
class Grounding:
    """A ground graph, with mappings from variables and factors to the model and the data.

    Args:
        blocks: blocks of variables, one for each random attribute or relation.
        states: state of each variable in the data, shape (n_variables,), int32; -1 if unknown.
        templates: description of each block of weights.
        group_names: name of the template of each group. A template whose formula contains evidence may have many groups.
        bindings: number of bindings of each template, by the name of the template.
        domains: values of every domain, in the order of the codes.
        gate_grounder: grounder of the gates; it runs when the gates are first read.
        budget: maximum number of bindings per template, also of what is grounded on demand.
        given_numbers: numbers that replace those of the data, shape (n_variables,); None for those of the data.
    """

    spec: ModelSpec
    bound: BoundModel
    graph: FactorGraph
    blocks: tuple[VariableBlock, ...]
    states: np.ndarray
    templates: tuple[TemplateInfo, ...]
    group_names: tuple[str, ...]
    bindings: Mapping[str, int]
    domains: Mapping[str, Sequence[str]]
    gate_grounder: GateGrounder
    budget: int
    given_numbers: np.ndarray | None = None

    def __repr__(self) -> str:
        factors = sum(group.n_factors for group in self.graph.groups)
        return f"Grounding({self.graph.n_variables:,} variables, {factors:,} factors of {listing(self.bindings)})"

    def _repr_html_(self) -> str:
        sizes = dict.fromkeys(self.bindings, 0)
        for name, group in zip(self.group_names, self.graph.groups, strict=True):
            sizes[name] += group.n_factors
        variables = [(b.name, b.count, int((self.states[b.start : b.start + b.count] >= 0).sum())) for b in self.blocks]
        templates = [(name, count, sizes[name]) for name, count in self.bindings.items()]
        first = html_table(("predicted", "variables", "observed"), variables, caption=repr(self))
        return first + html_table(("template", "bindings", "factors"), templates)

    def find_block(self, variable: int) -> VariableBlock:
        """Return the block of a variable."""
        return next(b for b in self.blocks if b.start <= variable < b.start + b.count)

    @cached_property
    def latent(self) -> np.ndarray:
        """Mask of the latent variables, which are never observed; shape (n_variables,), bool."""
        return np.repeat([b.is_latent for b in self.blocks], [b.count for b in self.blocks]).astype(bool)

    @cached_property
    def numbers(self) -> np.ndarray:
        """Value of each variable that is a number, shape (n_variables,); nan if unknown, and for discrete variables."""
        if self.given_numbers is not None:
            return self.given_numbers
        nothing = np.broadcast_to(np.nan, self.graph.n_variables)
        if not any(block.is_numeric for block in self.blocks):
            return nothing
        parts = [read_numbers(self.bound, b) if b.is_numeric else nothing[: b.count] for b in self.blocks]
        return np.concatenate(parts)

    @cached_property
    def candidates(self) -> tuple[CandidateSpace, ...]:
        """The spaces of candidate factors of the model, one for each candidate declaration.

        Raises:
            BudgetError: if a literal of a candidate declaration has more cells than the budget.
            UsageError: if a candidate declaration does not consist of two or three literals, or two terms.
        """
        return ground_candidates(self.bound, self.blocks, self.budget)

    @cached_property
    def random_pairs(self) -> tuple[RandomPairs, ...]:
        """Random pairs that the random relations do not admit, with their factors over one variable."""
        return ground_random_pairs(self.bound, self.templates, self.budget)

    @cached_property
    def _gates(self) -> tuple[Gates, tuple[TemplateInfo, ...]]:
        return self.gate_grounder.ground(self.graph, self.templates, self.group_names)

    @property
    def gates(self) -> Gates:
        """The gates of the factors over two variables, grounded when they are first read.

        Raises:
            DataError: if a gate feature is not finite.
        """
        return self._gates[0]

    @property
    def gate_templates(self) -> tuple[TemplateInfo, ...]:
        """Description of each block of gate weights. Raises the same errors as `gates`."""
        return self._gates[1]

    @cached_property
    def lazy_gates(self) -> LazyGates:
        """The gates in a container that grounds the gates on first use."""
        return LazyGates(lambda: self.gates)

    @cached_property
    def component(self) -> np.ndarray:
        """The lowest variable of each variable's component if nothing is observed, shape (n_variables,), int32.

        Factors and candidates connect the variables of a component. Raises the same errors as `candidates`.
        """
        return unconditional_components(self.graph, [space.pairs for space in self.candidates])

    def with_candidates(self, chosen_keys: Mapping[str, tuple[tuple[str, ...], ...]]) -> Grounding:
        """Return a copy of the ground graph with the factors of the chosen candidates.

        Args:
            chosen_keys: key texts of the chosen candidates, in the order of `per`, by the name of the declaration.
        """
        graph, templates, names, bindings = self.graph, self.templates, self.group_names, dict(self.bindings)
        for space in self.candidates:
            if space.pairs.name not in chosen_keys:
                continue
            block = space.make_block(chosen_keys[space.pairs.name], len(graph.layout.blocks))
            graph = graph.with_groups(block.groups, block.weights)
            templates, names = (*templates, block.info), (*names, *block.group_names)
            bindings.update(block.bindings)
        return replace(self, graph=graph, templates=templates, group_names=names, bindings=bindings)

    @cached_property
    def _argument_cache(self) -> dict[str, list[np.ndarray]]:
        return {}

    def argument_texts(self, block: VariableBlock) -> list[np.ndarray]:
        """Return the arguments of all variables of a block as texts: one array for each of `block.argument_types`."""
        if block.name not in self._argument_cache:
            self._argument_cache[block.name] = read_argument_texts(self.bound, block)
        return self._argument_cache[block.name]

    def variable_name(self, variable: int) -> str:
        """Return the name of a variable, such as `Page(12).category` or `Smokes(anna)`."""
        return str(self.variable_names(np.array([variable]))[0])

    @cached_property
    def _variable_names(self) -> np.ndarray:
        return format_variables(self.bound, self.blocks, np.arange(self.graph.n_variables))

    def variable_names(self, variables: np.ndarray) -> np.ndarray:
        """Return the names of some variables, shape (n,), object."""
        if self.graph.n_variables <= MAX_CACHED_NAMES:
            names: np.ndarray = self._variable_names[variables]
            return names
        return format_variables(self.bound, self.blocks, variables)

    def values_in_data(self, block: VariableBlock, variables: np.ndarray) -> np.ndarray:
        """Return the values of some variables of a block in the data, shape (n,), object; None if unknown."""
        if block.is_numeric:
            numbers: np.ndarray = self.numbers[variables].astype(object)
            numbers[self.states[variables] < 0] = None
            return numbers
        values: np.ndarray = np.asarray([*block.values, None], dtype=object)
        return np.asarray(values[self.states[variables]])

    def find_variable(self, text: str) -> int:
        """Return the index of the variable with the given name, in which keys may be quoted.

        Raises:
            UsageError: if no variable has this name, or the name is ambiguous.
        """
        return find_variable(self.bound, self.blocks, text)

    def similar_arguments(self, block: VariableBlock, arguments: Sequence[str]) -> tuple[str, ...] | None:
        """Return the arguments of the variable with the most similar keys; None if no key is similar."""
        return similar_arguments(self.bound, block, arguments)

    def groups(self, template: str) -> list[FactorGroup]:
        """Return the factor groups of a template.

        Raises:
            UsageError: if no template of that name was grounded.
        """
        if template not in self.bindings:
            message = f"unknown template '{template}'"
            if any(t.name == template for t in self.spec.templates if t.is_candidate):
                message = f"'{template}' is a candidate declaration, which is not grounded"
            hint = suggestion(template, self.bindings) or f"the templates are {listing(self.bindings)}"
            raise UsageError(Diagnostic("E316", message, hint=hint))
        return [g for name, g in zip(self.group_names, self.graph.groups, strict=True) if name == template]

    def count_instances(self, template: str) -> int:
        """Return the number of rows that `instances` returns for a template. Raises the same errors as `groups`."""
        groups = self.groups(template)
        width = max(1, len(self._lowered[template].features))
        return sum(count_bindings(group.features, width) for group in groups)

    def instances(self, template: str, start: int = 0, limit: int | None = None) -> Frame:
        """Return the bindings of a template, one row each.

        If `over` has one term and `per` is empty, the bindings of each variable are summed into one row. The columns have
        the names of the model. They are the keys of the entities in `over`; the states of the variables in the data (None
        if unknown); the items of `per`; and the values of the features (`1` is the constant).

        Args:
            start: index of the first row to return.
            limit: maximum number of rows; None returns all rows from `start` on.

        Raises:
            UsageError: if no template of that name was grounded.
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
        slots = list(zip(self._scope_arguments(lowered), lowered.terms, rows.scope, strict=True))
        for (block, arguments), _, variables in slots:
            for name, texts in zip(arguments, read_arguments(self.bound, block, variables), strict=True):
                columns.setdefault(name, texts)
        for (block, _), term, variables in slots:
            columns[render_expression(term)] = self.values_in_data(block, variables)
        # A column of `over` that is also an item of `per` or a feature is included only once.
        for name, texts in zip(_key_names(lowered), self._key_texts(lowered, rows.keys), strict=True):
            columns.setdefault(name, texts)
        for name, values in zip(names, rows.values.T, strict=True):
            columns.setdefault(name, values)
        return Frame(columns)

    def factors(self, variable: int | str) -> Frame:
        """Return a table of all factors that contain a variable, with one row for each feature of each binding.

        Columns: `template`, `scope` (variable names), `key` (texts of `per`), `feature` (`1` for the constant), `value`.

        Args:
            variable: index or name of the variable.

        Raises:
            UsageError: if there is no such variable.
        """
        index = self.find_variable(variable) if isinstance(variable, str) else variable
        if not 0 <= index < self.graph.n_variables:
            hint = f"variables have indices from 0 to {self.graph.n_variables - 1}"
            raise UsageError(Diagnostic("E313", f"unknown variable {index}", hint=hint))
        bindings = [(name, rows) for name, rows in self._iter_bindings(index) if len(rows)]
        variables_seen = distinct(
            np.concatenate([[index], *(variables for _, rows in bindings for variables in rows.scope)])
        )
        names = self.variable_names(variables_seen)
        texts: dict[str, list[np.ndarray]] = {name: [] for name in ("template", "scope", "key", "feature")}
        for template, rows in bindings:
            lowered = self._lowered[template]
            features = np.asarray(lowered.feature_names or ("1",), dtype=object)
            scope = [names[np.searchsorted(variables_seen, variables)] for variables in rows.scope]
            texts["template"].append(np.full(rows.values.size, template, dtype=object))
            texts["scope"].append(np.repeat(_join_texts(scope, len(rows)), len(features)))
            texts["key"].append(np.repeat(_join_texts(self._key_texts(lowered, rows.keys), len(rows)), len(features)))
            texts["feature"].append(np.tile(features, len(rows)))
        columns = {name: np.concatenate([np.empty(0, dtype=object), *parts]) for name, parts in texts.items()}
        return Frame(
            {**columns, "value": np.concatenate([np.empty(0), *(rows.values.ravel() for _, rows in bindings)])}
        )

    def _iter_bindings(self, variable: int) -> Iterator[tuple[str, BindingRows]]:
        """Yield, for each factor group, the template name and the bindings of the factors that contain a variable."""
        variable_block = self.find_block(variable)
        for template, group in zip(self.group_names, self.graph.groups, strict=True):
            lowered = self._lowered[template]
            width = max(1, len(lowered.features))
            slots = [k for k, (block, _) in enumerate(self._scope_arguments(lowered)) if block == variable_block]
            factors = distinct(np.concatenate([EMPTY, *(find_factors(group.scope, k, variable) for k in slots)]))
            yield template, read_bindings(group, bindings_of_factors(group.features, factors, width), width)

    @cached_property
    def _lowered(self) -> dict[str, LoweredTemplate]:
        context = make_lowering_context(self.bound)
        return {t.name: lower_template(t, context) for t in context.spec.templates if t.name in self.bindings}

    def _key_texts(self, lowered: LoweredTemplate, keys: np.ndarray) -> list[np.ndarray]:
        """Return the texts of some keys: one array of shape (n,), object, for each item of `per`."""
        info = next(info for info in self.templates if info.name == lowered.template.weights)
        if info.keys is None:
            return []
        distinct, inverse = np.unique(keys, return_inverse=True)
        texts = np.array([info.keys.values[key] for key in distinct.tolist()], dtype=object)
        return [column[inverse] for column in texts.reshape(len(distinct), len(lowered.keys)).T]

    def _scope_arguments(self, lowered: LoweredTemplate) -> list[tuple[VariableBlock, tuple[str, ...]]]:
        """Return, for each slot of a template's scope, the block of variables and the arguments as text in the model."""
        slots: list[tuple[VariableBlock, tuple[str, ...]]] = []
        for term in lowered.terms:
            arguments = (term.binder,) if isinstance(term, Attribute) else tuple(map(render_expression, term.arguments))
            slots.append((find_block(term, lowered.scope, self.blocks), arguments))
        return slots


def _key_names(lowered: LoweredTemplate) -> list[str]:
    """Return the text of each item of `per` in the model; for a bag in `by`, return the name of the bag's domain."""
    return [render_expression(key) for key in lowered.template.per] or [str(key.value_type) for key in lowered.keys]


def _join_texts(columns: Sequence[np.ndarray], count: int) -> np.ndarray:
    """Join the texts of each row with commas, shape (count,), object; without columns, the joined texts are empty."""
    rows = zip(*columns, strict=True) if columns else [()] * count
    return np.fromiter((", ".join(row) for row in rows), dtype=object, count=count)
