"""The infer command: the tasks of the UAI inference competitions on a model in the UAI format."""

from __future__ import annotations

import errno
import math
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TextIO

import numpy as np
import typer

from relcrf.cli.options import DeviceOption, SessionOptions, with_device
from relcrf.cli.output import parse_settings, print_json, print_note
from relcrf.cli.time_limit import exit_interrupted, parse_time
from relcrf.errors import ConvergenceError, DataError, Diagnostic, UsageError
from relcrf.execution.memory import available_bytes
from relcrf.files import atomic_path
from relcrf.graph.conditioning import ConditionedGraph
from relcrf.graph.possible_states import condition_on_possible
from relcrf.graph.uai import (
    UaiModel,
    format_marginals,
    format_partition,
    format_states,
    read_evidence,
    read_model,
    read_query,
)
from relcrf.inference.auto import Auto
from relcrf.inference.clique_tree import CliqueTooLargeError
from relcrf.inference.coordinate_ascent import ascend_states, find_feasible_states, independent_states
from relcrf.inference.marginal_map import MarginalMap
from relcrf.inference.methods import METHODS, create_inference
from relcrf.inference.result import AbstractInference, MapStates, Verdict

LOG10 = math.log(10)

NO_KNOWN_STATES = "; no joint state with positive probability is known: the evidence may be impossible"
"""Remark on an approximate result of a model with zeros."""

DEFAULT_SECONDS = 60.0
"""Time for which the limits of method `auto` are set if the user sets no time limit."""

CELLS_PER_SECOND = 1 << 25
"""Maximum number of cells of exact inference per second of the time limit. Marginals take 12 ns per cell, and the search for an
elimination order 1 ns; this leaves half of the time for slower machines."""

PARTITION_RATIO = 2
"""Ratio of cells per second for the partition function alone to those for marginals."""

BOUND_CELLS = 1 << 18
"""Maximum number of cells of a table of weighted mini-buckets; they then take a few seconds on models of UAI 2014."""

RESTARTS, SWEEPS, ROUNDS = 4, 5000, 127
"""Restarts of belief propagation, sweeps of Gibbs sampling where it does not converge, and rounds of the search for most probable
states; 127 rounds take about half a minute on models of the UAI 2014 competition."""

MethodSetOption = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="NAME=VALUE", help="Setting of the method, e.g. damping=0.5; repeatable."),
]


class UaiTask(StrEnum):
    """A task of the UAI competitions: partition function, marginals, or most probable states of all or some variables."""

    PR = "PR"
    MAR = "MAR"
    MPE = "MPE"
    MMAP = "MMAP"


@dataclass(frozen=True)
class _UaiAnswer:
    """The result of a task: its text in the format of the competition, the verdict, a remark, and values for JSON."""

    text: str
    verdict: Verdict
    remark: str
    facts: dict[str, Any]


@contextmanager
def _open_output(out: Path | None) -> Iterator[TextIO]:
    """Open standard output, a device, a pipe or a regular file; a regular file is written atomically."""
    if out is None:
        yield sys.stdout
        return
    if out.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(out))
    if out.exists() and not out.is_file():
        with out.open("w", encoding="ascii") as file:
            yield file
        return
    out = out.resolve()  # if `out` is a link, replace its target
    with atomic_path(out) as partial, partial.open("w", encoding="ascii") as file:
        yield file


def infer(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model in the UAI format, a .uai file.")],
    task: Annotated[
        UaiTask,
        typer.Option(
            metavar="PR|MAR|MPE|MMAP",
            help="Partition function, marginals, or most probable states of all variables or of those of --query.",
            case_sensitive=False,
        ),
    ],
    session: SessionOptions,
    evidence: Annotated[Path | None, typer.Option(metavar="PATH", help="Evidence, a .evid file.")] = None,
    query: Annotated[Path | None, typer.Option(metavar="PATH", help="Variables of task MMAP, a .query file.")] = None,
    method: Annotated[
        str, typer.Option("--method", "-m", metavar="NAME", help=f"Inference method: {', '.join(METHODS)}.")
    ] = "auto",
    setting: MethodSetOption = None,
    device: DeviceOption = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="PATH", help="Write the result to a file."),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with code 4 if inference fails to converge.")] = False,
) -> None:
    """Run a task of the UAI inference competitions on a model and evidence.

    Example: relcrf infer grid.uai --evidence grid.evid --task MAR --out grid.MAR
    """
    _check_query(task, query, method)
    chosen = parse_settings(with_device(setting, device))
    with _open_output(out) as target:
        with session.show_progress() as display:
            display.start_phase("reading the model")
            model_data = read_model(model)
            states = np.full(model_data.scopes.n_nodes, -1, dtype=np.int64)
            if evidence is not None:
                states = read_evidence(evidence, model_data.scopes.cardinality)
            n_observed = int((states >= 0).sum())
            conditioned = condition_on_possible(model_data.scopes, model_data.potentials, states)

            wanted = np.arange(len(states)) if query is None else read_query(query, len(states))

            def observe(verdict: Verdict) -> None:
                display.start_phase(f"{method}: {verdict}")

            display.start_phase(method)
            started = time.perf_counter()
            graph = model_data.scopes if conditioned is None else conditioned.scopes
            defaults = _budget(task, parse_time(session.time_limit)) if method == "auto" else {}
            inference = create_inference(method, graph, defaults | chosen, observe)
            try:
                answer = _compute_answer(task, model_data, conditioned, states, wanted, inference)
            except (ValueError, MemoryError) as error:
                message = f"method '{method}' cannot compute {task}: {error}"
                raise UsageError(Diagnostic("E381", message, hint=_suggest_fix(error))) from None
            seconds = time.perf_counter() - started
        if strict and not answer.verdict.is_good and answer.verdict.status != "interrupted":
            message = f"method '{method}': {answer.verdict}"
            raise ConvergenceError(
                Diagnostic(
                    "E402",
                    message,
                    hint="raise the number of iterations, or add damping; see the settings of the method",
                )
            )
        if out is not None or not session.as_json:
            target.write(answer.text)
    n_free = model_data.scopes.n_nodes - n_observed
    verdict = {"status": answer.verdict.status, "iterations": answer.verdict.iterations}
    verdict |= {
        "residual": answer.verdict.residual,
        "remark": answer.verdict.remark,
        "exact_variables": n_free - graph.n_nodes + _count_exact_variables(inference, answer.verdict),
    }
    sizes = {"variables": model_data.scopes.n_nodes, "observed": n_observed}
    if session.as_json:
        facts = {"task": task.value, "method": method, **sizes, "verdict": verdict, **answer.facts}
        print_json(facts | {"seconds": seconds, "out": out})
    else:
        part = "" if answer.verdict.status == "exact" else f"; {verdict['exact_variables']:,} of {n_free:,} exact"
        print_note(f"{method}: {answer.verdict}{part}{answer.remark}")
    if answer.verdict.status == "interrupted":
        exit_interrupted()


def _count_exact_variables(inference: AbstractInference, verdict: Verdict) -> int:
    """Return the number of variables of the graph that are inferred exactly."""
    if isinstance(inference, Auto):
        return inference.n_exact_nodes
    return inference.scopes.n_nodes if verdict.status == "exact" else 0


def _check_query(task: UaiTask, query: Path | None, method: str) -> None:
    """Raise UsageError if the options contradict the task."""
    if (task is UaiTask.MMAP) != (query is not None):
        message = "task MMAP needs the variables of the query" if query is None else f"task {task} has no query"
        hint = "add --query PATH" if query is None else "use --task MMAP, or omit --query"
        raise UsageError(Diagnostic("E300", message, hint=hint))
    if task is UaiTask.MMAP and method != "auto":
        message = f"method '{method}' cannot compute MMAP: it cannot sum over some variables and maximise over others"
        raise UsageError(Diagnostic("E381", message, hint="use --method auto"))


def _budget(task: UaiTask, seconds: float | None) -> dict[str, Any]:
    """Return settings of method `auto` for a task and a time limit; by default, exact inference may take half a minute."""
    n_cells = CELLS_PER_SECOND * (DEFAULT_SECONDS if seconds is None else seconds)
    return {
        "max_cells": int(n_cells * (PARTITION_RATIO if task is UaiTask.PR else 1)),
        "memory": available_bytes() // 2,
        "bound_cells": BOUND_CELLS,
        "restarts": RESTARTS,
        "sweeps": SWEEPS,
        "rounds": ROUNDS,
        "anytime": True,
    }


def _suggest_fix(error: ValueError | MemoryError) -> str:
    """Return the hint for a method that is not applicable."""
    if isinstance(error, MemoryError) or (isinstance(error, CliqueTooLargeError) and error.is_memory):
        return "use --method auto, or allow more memory, e.g. --set memory=16000000000"
    if isinstance(error, CliqueTooLargeError):
        return f"use --method auto, or allow more time: --set max_cells={error.required}"
    return "use another method, e.g. --method auto"


def _compute_answer(
    task: UaiTask,
    model: UaiModel,
    left: ConditionedGraph | None,
    states: np.ndarray,
    query: np.ndarray,
    inference: AbstractInference,
) -> _UaiAnswer:
    """Run inference on the unobserved variables, and compute the result for all variables.

    Args:
        left: The graph over the variables with several possible states; None if the evidence is impossible.
        states: State of each variable that has one possible state, -1 for others.
        query: Variables whose most probable joint state is the answer of task MMAP.

    Raises:
        DataError: The evidence has probability 0 and the task is MAR or MPE.
        ValueError: The method cannot solve the task.
    """
    if left is None or model.constant == -np.inf:
        if task is not UaiTask.PR:
            raise _zero_probability_error()
        return _UaiAnswer(
            format_partition(-np.inf), Verdict("exact"), "", {"log10_partition": -np.inf, "possible": False}
        )
    constant = model.constant + left.constant
    if task in (UaiTask.MPE, UaiTask.MMAP):
        if isinstance(inference, Auto) and task is UaiTask.MMAP:
            found_states = MarginalMap(inference, ~np.isin(left.free_nodes, query)).map_states(left.potentials)
        else:
            found_states = inference.map_states(left.potentials)
        return _describe_states(task, left, constant, states, query, found_states)
    marginals = inference.marginals(left.potentials) if task is UaiTask.MAR else None
    found = inference.partition(left.potentials) if marginals is None else marginals.partition
    lower, upper = found.lower + constant, min(found.upper + constant, model.upper)
    log_partition = min(found.log_partition + constant, max(upper, lower))
    if log_partition == -np.inf and not (found.verdict.status == "exact" or upper == -np.inf):
        raise ValueError("it found no joint state with positive probability")
    doubt = "" if found.verdict.status == "exact" or _has_known_states(left) else NO_KNOWN_STATES
    facts: dict[str, Any] = {"log10_partition": log_partition / LOG10, "possible": log_partition != -np.inf}
    facts |= {"log10_lower": lower / LOG10, "log10_upper": upper / LOG10}
    if marginals is None:
        if math.isnan(log_partition):
            is_diverged = found.verdict.status == "diverged"
            raise ValueError("it diverged" if is_diverged else "it does not compute the partition function")
        remark = ""
        if found.verdict.status != "exact" and (np.isfinite(lower) or np.isfinite(upper)):
            remark = f"; log10 Z is between {lower / LOG10:.6g} and {upper / LOG10:.6g}"
        return _UaiAnswer(format_partition(log_partition), found.verdict, doubt or remark, facts)
    if log_partition == -np.inf:
        raise _zero_probability_error()
    if not np.isfinite(marginals.nodes).all():
        raise ValueError("it diverged")
    nodes = np.zeros(int(model.scopes.state_start[-1]))
    fixed = np.flatnonzero(states >= 0)
    nodes[model.scopes.state_start[fixed] + states[fixed]] = 1.0
    nodes[np.repeat(states < 0, model.scopes.cardinality)] = marginals.nodes
    tables = np.split(nodes, model.scopes.state_start[1:-1]) if len(states) else []
    facts["marginals"] = [table.tolist() for table in tables]
    return _UaiAnswer(format_marginals(model.scopes.cardinality, nodes), found.verdict, doubt, facts)


def _has_known_states(left: ConditionedGraph) -> bool:
    """Return whether a local search finds a joint state with positive probability, if there are zeros."""
    factors = left.scopes.kernel_factors
    states = ascend_states(factors, left.potentials, independent_states(left.scopes, left.potentials))
    return find_feasible_states(factors, left.potentials, states, np.random.default_rng(0))[1]


def _describe_states(
    task: UaiTask, left: ConditionedGraph, constant: float, states: np.ndarray, query: np.ndarray, best: MapStates
) -> _UaiAnswer:
    """Return the answer of task MPE or MMAP; see `_compute_answer`."""
    score, bound = (best.score + constant) / LOG10, (best.bound + constant) / LOG10
    if score == -np.inf:
        if best.verdict.status == "exact" or bound == -np.inf:
            raise _zero_probability_error()
        raise ValueError("it found no joint state with positive probability")
    all_states = states.copy()
    all_states[left.free_nodes] = best.states
    facts: dict[str, Any] = {"states": all_states[query].tolist(), "log10_score": score, "log10_bound": bound}
    remark = f"; log10 score {score:.6g}"
    if best.verdict.status != "exact":
        remark += f", at most {bound - score:.3g} below the optimum" if bound < np.inf else ", no bound"
    return _UaiAnswer(format_states(all_states[query], task), best.verdict, remark, facts | {"gap": bound - score})


def _zero_probability_error() -> DataError:
    message = "the evidence has probability 0: no joint state of the model agrees with it"
    return DataError(
        Diagnostic("E242", message, hint="fix the evidence or the zeros of the model; --task PR returns -inf")
    )
