"""Mean-field contrastive divergence for models with features chosen from spaces of candidates.

The initial distribution q0 is concentrated on the labels; unlabelled variables have their mean-field distributions
given the labels. k mean-field updates transform q0 into qk, which is closer to the model's distribution p. Learning
changes the weights such that the updates change q0 less. q0 and qk are products of single-variable distributions.

See `active_candidates.py` for the terms literal, candidate, space, side, cell and key.

Source: Welling & Hinton, A new learning algorithm for mean field Boltzmann machines (2002); Lao & Zhu, Contrastive
Feature Induction for Efficient Structure Learning of Conditional Random Fields (2014), equations 3 and 8 to 13.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from scipy.sparse import csr_array
from scipy.special import xlogy

from relcrf.columns.offsets import entries_of_runs, offsets
from relcrf.graph.candidates import CandidateSet, CandidateSide
from relcrf.graph.reduction import ReducedGraph
from relcrf.graph.triples import CompositeLiterals, PairOrTripleSpace
from relcrf.kernels import conditionals
from relcrf.learning.active_candidates import ActiveCandidates, SideInteractions
from relcrf.learning.literal_likelihood import AbstractLiteralObjective
from relcrf.learning.literals import Literals

MAX_CLAMPED_SWEEPS = 50
"""Maximum number of mean-field sweeps over the unlabelled variables given the labels."""

MAX_PARTNER_RATIO = 4
"""Maximum ratio of the size of the other sides of a region to that of a side's cells in the region; see `_partners`."""

CLAMPED_TOLERANCE = 1e-6
"""The mean field of the unlabelled variables has converged if a sweep changes no probability by more than this."""


@dataclass(frozen=True, eq=False)
class ContrastiveDivergence(AbstractLiteralObjective):
    """The contrastive divergence `KL(q0 || p) - KL(qk || p)`.

    The gradient for the weight of feature f is the difference of expectations `<f>_qk - <f>_q0`. This gradient ignores
    that q0 and qk depend on the weights, so it is not the derivative of the value and not suitable for line searches.
    If no two labels interact, one update gives the negative log pseudo-likelihood and the gradient of this function.

    Args:
        base: The graph of the free variables, without candidates; each factor has at most two free variables.
        regions: Sets of nodes in the order of their updates; the nodes of a set are updated simultaneously.
        whole_region: The region that contains all nodes; its `cells` are those of the graph, in their order.
        steps: Number k of updates of each node, at least 1.
    """

    exact_gradient: ClassVar[bool] = False
    regions: tuple[UpdateRegion, ...]
    whole_region: UpdateRegion
    steps: int = 1

    @classmethod
    def build(
        cls,
        base: ReducedGraph,
        states: np.ndarray,
        spaces: tuple[PairOrTripleSpace, ...],
        steps: int = 1,
        blocks: np.ndarray | None = None,
    ) -> ContrastiveDivergence:
        """Return the objective without chosen candidates, trained on all labels.

        Args:
            blocks: The block of each node, shape (n_nodes,), integers; the nodes of a block are updated simultaneously.
                The blocks are updated in ascending order. None assigns all nodes to one block.
        """
        literals = Literals.build(base, spaces, np.empty(0, dtype=np.int64))
        trained = np.ones(base.n_nodes, dtype=bool)
        (whole_region,) = regions = build_regions(base, literals, np.zeros(base.n_nodes, dtype=np.int64))
        if blocks is not None:
            regions = build_regions(base, literals, np.unique(blocks, return_inverse=True)[1])
        labelled = states >= 0
        observed = np.repeat(np.where(labelled, 0.0, 1.0 / base.cardinality), base.cardinality)
        observed[base.state_start[:-1][labelled] + states[labelled]] = 1.0
        truth_values = literals.expectations(observed)
        model = base, states, literals.spaces, CandidateSet.empty(), trained, literals, observed, truth_values
        return cls(*model, regions, whole_region, steps)

    def __call__(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        value, before, after = self.contrast(point)
        gradient = np.zeros(len(point))
        self.base.add_node_counts(after - before, gradient[: self.n_base])
        n_cells = len(self.whole_region.end_states) // 2  # entries of first ends precede entries of second ends
        first, second = self.whole_region.end_states[:n_cells], self.whole_region.other_end_states[:n_cells]
        tables = after[first] * after[second] - before[first] * before[second]
        self.base.add_edge_counts(tables, gradient[: self.n_base])
        errors, signals = (self.literals.expectations(values) for values in (after - before, 0.5 * (after + before)))
        gradient[self.n_base :] = self.active.count_changes(errors, signals)
        return value, gradient

    def candidate_gradient(self, candidates: CandidateSet, errors: np.ndarray, signals: np.ndarray) -> np.ndarray:
        return ActiveCandidates.from_set(self.literals, candidates).count_changes(errors, signals)

    @cached_property
    def interactions(self) -> tuple[tuple[SideInteractions, ...], ...]:
        """Return, for each region and each of its sides, the `SideInteractions` of the chosen candidates."""
        return self._interactions(self.regions)

    @cached_property
    def whole_interactions(self) -> tuple[SideInteractions, ...]:
        """Return `interactions` of the whole region."""
        is_only = self.regions[0] is self.whole_region
        return self.interactions[0] if is_only else self._interactions((self.whole_region,))[0]

    def _interactions(self, regions: tuple[UpdateRegion, ...]) -> tuple[tuple[SideInteractions, ...], ...]:
        chosen = []
        for number, space in enumerate(self.literals.spaces):
            pairs = self.chosen.pairs(self.chosen.indices_in_space(number))
            chosen.append([ChosenOfSide.build(space, k, pairs) for k in range(len(space.sides))])
        return tuple(
            tuple(side.interactions(chosen[side.space_index][side.side_index]) for side in region.sides)
            for region in regions
        )

    def errors_and_signals(self, point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        _, before, after = self.contrast(point)
        return self.literals.expectations(after - before), self.literals.expectations(0.5 * (after + before))

    def composite_errors(
        self, composites: CompositeLiterals, errors: np.ndarray, signals: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        return composites.append_errors(errors, signals), composites.append_means(signals, errors)

    def contrast(self, point: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Return the value, and the flat node tables of q0 and of qk.

        A variable whose label is not trained on has the same distribution in q0 and qk.
        """
        updater = MeanFieldUpdater(self, point)
        hidden = np.repeat(self.states < 0, self.base.cardinality)
        before = self._clamped_mean_field(updater, hidden) if hidden.any() else self.observed
        after = before.copy()
        updatable = hidden | np.repeat(self.trained, self.base.cardinality)
        for _ in range(self.steps):
            updater.sweep(updatable, after)
        return updater.free_energy(before) - updater.free_energy(after), before, after

    def _clamped_mean_field(self, updater: MeanFieldUpdater, hidden: np.ndarray) -> np.ndarray:
        """Return the mean field of the unlabelled variables given the labels."""
        q, last_change, damping = self.observed, np.inf, 1.0
        for _ in range(MAX_CLAMPED_SWEEPS):
            new = q.copy()
            updater.sweep(hidden, new)
            change = float(np.abs(new - q).max())
            if change >= last_change:  # damping stops oscillations of simultaneous updates
                damping *= 0.5
            q, last_change = q + damping * (new - q), change
            if change <= CLAMPED_TOLERANCE:
                break
        return q


class MeanFieldUpdater:
    """An updater of mean-field distributions for a model with fixed weights.

    Args:
        point: Weights of the base and of the chosen candidates.
    """

    def __init__(self, model: ContrastiveDivergence, point: np.ndarray) -> None:
        self.model = model
        self.node_potentials = model.base.node_log_potentials(point[: model.n_base])
        self.edge_potentials = model.base.edge_log_potentials(point[: model.n_base])
        self.weights = [
            point[model.n_base + model.chosen.indices_in_space(number)] for number in range(len(model.spaces))
        ]

    def sweep(self, updatable: np.ndarray, q: np.ndarray) -> None:
        """Update flat node tables in place, region by region.

        Args:
            updatable: Mask of the table entries of the nodes to update, shape of `q`, bool.
        """
        literals = self.model.literals
        truth_values = literals.expectations(q)
        by_condition = truth_values.reshape(len(literals.truth_tables), literals.n_variables)
        for region, interactions in zip(self.model.regions, self.model.interactions, strict=True):
            updated_cells = updatable[region.cells]
            if updated_cells.any():
                updated = self.node_potentials[region.cells]
                updated += self.expected_log_potentials(region, interactions, q, truth_values)
                conditionals.normalise(region.literals.state_start, updated, np.empty(region.literals.n_nodes))
                q[region.cells] = np.where(updated_cells, updated, q[region.cells])
                if region is not self.model.regions[-1]:
                    expectations = region.literals.expectations(q[region.cells])
                    by_condition[:, region.nodes] = expectations.reshape(len(by_condition), len(region.nodes))

    def expected_log_potentials(
        self,
        region: UpdateRegion,
        interactions: tuple[SideInteractions, ...],
        q: np.ndarray,
        truth_values: np.ndarray,
        triple_factor: float = 1.0,
    ) -> np.ndarray:
        """Return, for each state of each node of a region, the expected log potential of the node's larger factors.

        They are the factors over several variables. The expectation is over the other variables of a factor.

        Args:
            interactions: The interactions of the region's sides.
            truth_values: Expectation of each literal under `q`.
            triple_factor: Multiplier of the potentials of triples.

        Returns:
            Shape of `region.cells`.
        """
        model = self.model
        products = self.edge_potentials[region.edge_cells] * q[region.other_end_states]
        out, scores = np.zeros(len(region.cells)), np.zeros(region.literals.size)
        out += np.bincount(region.end_states, products, len(out))  # integers if there are no edges
        for side, active in zip(region.sides, interactions, strict=True):
            weights = self.weights[side.space_index]
            if len(model.spaces[side.space_index].sides) > 2:
                weights = triple_factor * weights
            if len(active.candidates):
                active.add_scores(side.cells, weights, truth_values, scores)
        region.literals.add_scores(scores, out)
        return out

    def free_energy(self, q: np.ndarray) -> float:
        """Return `-H(q) - E_q(score)` of flat node tables, which is `KL(q || p)` minus the log partition function."""
        # The expected potentials count a pair twice and a triple three times; 1/2 and 1/2 * 2/3 = 1/3 correct this.
        model, truth_values = self.model, self.model.literals.expectations(q)
        expected = self.expected_log_potentials(
            model.whole_region, model.whole_interactions, q, truth_values, triple_factor=2.0 / 3.0
        )
        return float((xlogy(q, q) - q * (self.node_potentials + 0.5 * expected)).sum())


@dataclass(frozen=True)
class ChosenOfSide:
    """The chosen candidates of a space, sorted by their keys on one side.

    Args:
        pairs: The candidates, shape (n, 2).
        interactions: The interactions of the side.
        by_key: Indices of the candidates, sorted by key, shape (n,).
        start: Offset of the candidates of each key in `by_key`, shape (n_keys + 1,).
    """

    pairs: np.ndarray
    interactions: SideInteractions
    by_key: np.ndarray
    start: np.ndarray

    @classmethod
    def build(cls, space: PairOrTripleSpace, side_index: int, pairs: np.ndarray) -> ChosenOfSide:
        interactions = SideInteractions.build(space, side_index, pairs)
        start = offsets(np.bincount(interactions.keys, minlength=space.sides[side_index].n_keys))
        return cls(pairs, interactions, np.argsort(interactions.keys, kind="stable"), start)


@dataclass(frozen=True)
class RegionSide:
    """The cells of one side of a candidate space that contain variables of a region.

    Args:
        space_index, side_index: The index of the space, and the index of the side in this space.
        keys: The keys that have such cells, ascending, shape (n,).
        cells: A side that contains these cells only; its keys are indices in `keys`, its variables literals of the region.
        partners: The space, whose other sides contain only the cells in the samples of `cells`; None for all of their cells.
    """

    space_index: int
    side_index: int
    keys: np.ndarray
    cells: CandidateSide
    partners: PairOrTripleSpace | None

    def interactions(self, chosen: ChosenOfSide) -> SideInteractions:
        """Return the interactions of the chosen candidates with keys in the region; their keys are indices in `keys`."""
        candidates = chosen.by_key[entries_of_runs(chosen.start, self.keys)]
        keys = np.repeat(np.arange(len(self.keys)), chosen.start[self.keys + 1] - chosen.start[self.keys])
        if self.partners is not None:
            restricted = SideInteractions.build(self.partners, self.side_index, chosen.pairs[candidates])
            return replace(restricted, candidates=candidates, keys=keys)
        partner_keys = chosen.interactions.partner_keys[candidates]
        return replace(chosen.interactions, candidates=candidates, keys=keys, partner_keys=partner_keys)


@dataclass(frozen=True)
class UpdateRegion:
    """Nodes that are updated simultaneously, and the edges and candidates that contribute to the nodes' scores.

    Args:
        nodes: The nodes, ascending, shape (n,).
        cells: Indices of the nodes' states in flat node tables, ascending.
        literals: The literals of the nodes; node i of the region is `nodes[i]`.
        end_states, other_end_states, edge_cells: For each edge end in the region and each entry of the edge's table:
            position of this end's state in `cells`, index of the other end's state, offset of the entry in flat edge tables.
        sides: The sides of candidate spaces that have cells in the region.
    """

    nodes: np.ndarray
    cells: np.ndarray
    literals: Literals
    end_states: np.ndarray
    other_end_states: np.ndarray
    edge_cells: np.ndarray
    sides: tuple[RegionSide, ...] = field(repr=False)


def build_regions(graph: ReducedGraph, literals: Literals, region_of: np.ndarray) -> tuple[UpdateRegion, ...]:
    """Return the regions of a graph; `region_of` contains the number of each node's region, shape (n_nodes,).

    The time is proportional to the size of the graph and of the sides, not to their product with the number of regions.
    """
    n = int(region_of.max(initial=0)) + 1
    nodes, position = _split(region_of, n)
    region_of_state = np.repeat(region_of, graph.cardinality)
    cells, state_position = _split(region_of_state, n)
    first, second = _edge_cell_states(graph)
    ends, others = np.concatenate((first, second)), np.concatenate((second, first))
    entries, _ = _split(region_of_state[ends], n)
    used = [[position[each[chosen]] for chosen in _split(region_of[each], n)[0]] for each in literals.nodes]
    sides: list[list[RegionSide]] = [[] for _ in range(n)]
    for number, space in enumerate(literals.spaces):
        for side_index, side in enumerate(space.sides):
            condition, node = np.divmod(side.variable, literals.n_variables)
            for k, chosen in enumerate(_split(region_of[node], n)[0]):
                if len(chosen):
                    variable = condition[chosen] * len(nodes[k]) + position[node[chosen]]
                    keys, key = np.unique(side.key[chosen], return_inverse=True)
                    own = CandidateSide.from_cells(len(keys), key, side.sample[chosen], variable, side.truth)
                    sides[k].append(RegionSide(number, side_index, keys, own, _partners(space, side_index, own)))
    return tuple(
        UpdateRegion(
            nodes[k],
            cells[k],
            literals.of_nodes(graph.cardinality[nodes[k]], [each[k] for each in used]),
            state_position[ends[entries[k]]],
            others[entries[k]],
            entries[k] % max(len(first), 1),
            tuple(sides[k]),
        )
        for k in range(n)
    )


def _split(group: np.ndarray, n_groups: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the indices of each group's elements, ascending, and the position of each element in its group."""
    order, start = np.argsort(group, kind="stable"), offsets(np.bincount(group, minlength=n_groups))
    position = np.empty(len(group), dtype=np.int64)
    position[order] = np.arange(len(group)) - start[group[order]]
    return np.split(order, start[1:-1]), position


def _partners(space: PairOrTripleSpace, side_index: int, cells: CandidateSide) -> PairOrTripleSpace | None:
    """Return the space, with only the cells of the other sides in the samples of `cells`; None if they would be too large.

    The memory of the other sides is limited to `MAX_PARTNER_RATIO` times that of `cells`, and then that of all regions to as many
    times that of the space. In a region of few keys, the kernels read the cells of few other keys, in all samples.
    """
    samples, sides, size = np.unique(cells.sample), list(space.sides), 0
    if 2 * len(samples) > space.n_samples:
        return None
    for k, side in enumerate(sides):
        if k == side_index:
            continue
        table = side.by_sample
        known = samples[samples < table.n_keys]
        size += side.n_keys + int((table.start[known + 1] - table.start[known]).sum())
        if size > MAX_PARTNER_RATIO * len(cells.sample):
            return None
        rows = entries_of_runs(table.start, known)
        sides[k] = CandidateSide.from_cells(
            side.n_keys, table.sample[rows], table.key[rows], table.variable[rows], side.truth
        )
    return space.with_sides(sides)


def _edge_cell_states(graph: ReducedGraph) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each entry of the flat edge tables, the indices of the two ends' states in flat node tables."""
    sizes = np.diff(graph.table_start)
    edge = np.repeat(np.arange(graph.n_edges), sizes)
    first, second = graph.edges[edge].T
    row, column = np.divmod(np.arange(len(edge)) - graph.table_start[edge], graph.cardinality[second])
    return graph.state_start[first] + row, graph.state_start[second] + column


def blocks_by_key(base: ReducedGraph, spaces: Sequence[PairOrTripleSpace]) -> np.ndarray:
    """Return the block of each node; nodes of a block have the same candidate key and are not connected by edges.

    Most candidates connect different keys, so block-wise updates are similar to sequential mean field, which updates
    one variable at a time.

    Returns:
        Shape (n_nodes,), int64.
    """
    key = np.zeros(base.n_nodes, dtype=np.int64)
    assigned = np.zeros(base.n_nodes, dtype=bool)
    next_key = 1
    for space in spaces:
        for side in space.sides:
            node = np.searchsorted(base.variables, side.variable)
            new = ~assigned[node]
            key[node[new]] = next_key + side.key[new]
            assigned[node] = True
            next_key += side.n_keys
    return np.asarray(
        np.unique(key * (base.n_nodes + 1) + _colour_nodes(base.n_nodes, base.edges), return_inverse=True)[1]
    )


def blocks_by_entity(base: ReducedGraph, spaces: Sequence[PairOrTripleSpace]) -> np.ndarray:
    """Return the block of each node; simultaneous updates of a block equal updates of one entity after another.

    The entity of a node is the first sample of the first space that contains the node, e.g. an animal, or an ordered
    pair of nations. Entities that do not interact are in the same block, because the order of their updates is
    irrelevant. Each node outside the spaces is a separate entity.

    Returns:
        Shape (n_nodes,), int64.
    """
    entity, next_entity = np.full(base.n_nodes, -1), 0
    cells = [
        [(np.searchsorted(base.variables, side.variable), side.sample) for side in space.sides] for space in spaces
    ]
    for space, sides in zip(spaces, cells, strict=True):
        node, sample = np.concatenate(sides, axis=1)
        first_sample = np.full(base.n_nodes, space.n_samples)
        np.minimum.at(first_sample, node, sample)
        new = (entity < 0) & (first_sample < space.n_samples)
        entity[new] = next_entity + first_sample[new]
        next_entity += space.n_samples
    entity[entity < 0] = next_entity + np.flatnonzero(entity < 0)
    entity = np.unique(entity, return_inverse=True)[1]
    size = int(entity.max(initial=-1)) + 1
    pairs = [entity[base.edges]]
    for space, sides in zip(spaces, cells, strict=True):
        tables = [
            csr_array((np.ones(len(node)), (entity[node], sample)), (size, space.n_samples)) for node, sample in sides
        ]
        for first, second in itertools.combinations(tables, 2):
            pairs.append(np.stack((first @ second.T).nonzero(), axis=1))
    edges = np.unique(np.sort(np.concatenate(pairs), axis=1), axis=0)
    return np.asarray(_colour_nodes(size, edges[edges[:, 0] != edges[:, 1]])[entity])


def _colour_nodes(n: int, edges: np.ndarray) -> np.ndarray:
    """Return a colour for each of n nodes such that neighbours have different colours.

    Each round of Luby's algorithm (1986) assigns one colour; all rounds use the same random order of nodes.
    """
    rank = np.random.default_rng(0).permutation(n)
    later_end = np.where(rank[edges[:, 0]] > rank[edges[:, 1]], edges[:, 0], edges[:, 1])
    colour = np.full(n, -1)
    next_colour, remaining = 0, np.ones(len(edges), dtype=bool)
    while (colour < 0).any():
        uncoloured = colour < 0
        uncoloured[later_end[remaining]] = False
        colour[uncoloured] = next_colour
        next_colour, remaining = next_colour + 1, remaining & ~uncoloured[edges].any(axis=1)
    return colour
