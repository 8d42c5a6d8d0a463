"""The memory that learning and inference need, estimated from the sizes of a ground graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from relcrf.backends.base import AbstractBackend, Problem
from relcrf.execution.memory import (
    INFERENCE_VECTORS,
    MemoryUse,
    TemplateSize,
    WorkingArrays,
    estimate_memory,
)
from relcrf.graph.components import iter_scope_chunks
from relcrf.graph.factor_graph import FactorGroup, RepeatedScope
from relcrf.graph.reduction import Role
from relcrf.learning.lbfgs import memory_length

SHARED_FACTOR_BYTES, SHARED_STATE_BYTES = 128, 16
"""Bytes per factor, and per state of its two variables, if factors with equal features share a table: indices, and messages
with a copy. On 10,000,000 links of variables with 5 states, inference needs 240 bytes per link."""

SCRATCH_VECTORS = 10
"""Number of weight vectors that learning needs besides the memory of the optimiser."""

RESULT_ARRAYS = 3
"""Number of arrays with a number for each state of each variable that the result of inference in shards needs."""


def working_arrays(backend: AbstractBackend, n_weights: int, *, learning: bool) -> WorkingArrays:
    """Return the numbers of arrays that a backend has in memory during learning or inference."""
    states, cells = backend.learning_arrays if learning else backend.inference_arrays
    return WorkingArrays(states, cells, _weight_vectors(n_weights, learning))


def _weight_vectors(n_weights: int, learning: bool) -> int:
    """Return the number of weight vectors in memory; a quasi-Newton method stores two for each step."""
    return SCRATCH_VECTORS + 2 * memory_length(n_weights) if learning else INFERENCE_VECTORS


def problem_memory(problem: Problem, backend: AbstractBackend, *, learning: bool) -> tuple[MemoryUse, ...]:
    """Return the parts of the memory that a backend needs for a problem in memory, the largest part first."""
    candidates = sum(space.nbytes for space in problem.candidates)
    arrays = working_arrays(backend, problem.graph.layout.size, learning=learning)
    sizes, messages = [*template_sizes(problem)], []
    n_separate = backend.separate_tables_per_variable * _count_states(problem)[0]
    for number, size in enumerate(sizes):
        if np.isfinite(n_separate) and (n_bytes := _message_bytes(problem, number)):
            most = max(group.n_joint_states for group in problem.graph.groups if group.block == number)
            sizes[number] = replace(size, n_cells=min(size.n_cells, int(n_separate * most)))
            messages.append(MemoryUse(f"messages of '{size.name}'", n_bytes))
    found = (*messages, *estimate_memory(sizes, *_count_states(problem), arrays, candidates))
    return tuple(sorted(found, key=lambda use: -use.n_bytes))


def _message_bytes(problem: Problem, block: int) -> int:
    """Return the memory that inference needs for a template over two variables whose factors share tables, or else 0."""
    groups = [group for group in problem.graph.groups if group.block == block and len(group.scope) > 1]
    if not all(len(group.scope) == 2 and group.features.row_classes(slice(0, 0)) is not None for group in groups):
        return 0
    return sum(
        _count_tables(group, problem.roles) * (SHARED_FACTOR_BYTES + SHARED_STATE_BYTES * sum(group.cardinalities))
        for group in groups
    )


def _count_tables(group: FactorGroup, roles: np.ndarray) -> int:
    """Return the number of factors over two or more free and no absent variables; the others have no table."""
    if isinstance(group.scope, RepeatedScope):
        return group.n_factors
    count = 0
    for scope in iter_scope_chunks(group):
        of_scope = [roles[variable] for variable in scope]
        n_free = np.sum([role == Role.FREE for role in of_scope], axis=0)
        count += int(((n_free > 1) & np.logical_and.reduce([role != Role.ABSENT for role in of_scope])).sum())
    return count


def shared_memory(problem: Problem, *, learning: bool) -> tuple[MemoryUse, ...]:
    """Return the parts of the memory that are needed besides the shards if the graph is stored in shards."""
    sizes = [TemplateSize(block.name, 0, block.size) for block in problem.graph.layout.blocks]
    candidates = sum(space.nbytes for space in problem.candidates)
    n_vectors = _weight_vectors(problem.graph.layout.size, learning)
    arrays = WorkingArrays(0 if learning else RESULT_ARRAYS, 0, n_vectors)
    return estimate_memory(sizes, *_count_states(problem), arrays, candidates)


def _count_states(problem: Problem) -> tuple[int, int]:
    free = problem.roles == Role.FREE
    return int(free.sum()), int(problem.graph.cardinality[free].sum(dtype=np.int64))


def template_sizes(problem: Problem) -> Sequence[TemplateSize]:
    """Return the size of each template of a problem's graph; factors over one free variable have no table."""
    sizes = []
    for number, block in enumerate(problem.graph.layout.blocks):
        groups = [group for group in problem.graph.groups if group.block == number]
        # The table of an agreement is a single number.
        cells = sum(
            _count_tables(group, problem.roles) * (1 if group.is_agreement else group.n_joint_states)
            for group in groups
            if len(group.scope) > 1
        )
        sizes.append(TemplateSize(block.name, sum(group.nbytes for group in groups), block.size, cells))
    return sizes
