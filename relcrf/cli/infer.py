"""The command `infer`: the questions of the inference competitions about a model of the UAI format."""

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

from relcrf.cli.options import SessionOptions, SetOption
from relcrf.cli.output import parse_settings, print_json, print_note
from relcrf.cli.time_limit import exit_interrupted
from relcrf.errors import ConvergenceError, DataError, Diagnostic, UsageError, listing
from relcrf.files import atomic_path
from relcrf.graph.conditioning import ConditionedGraph, condition
from relcrf.graph.uai import UaiModel, format_marginals, format_partition, format_states, read_evidence, read_model
from relcrf.inference.auto import Auto
from relcrf.inference.methods import METHODS, create_inference
from relcrf.inference.result import AbstractInference, Verdict

LOG10 = math.log(10)


class UaiTask(StrEnum):
    """What is asked: the partition function, the marginals, or the most probable states."""

    PR = "PR"
    MAR = "MAR"
    MPE = "MPE"


@dataclass(frozen=True)
class _UaiAnswer:
    """The answer as the competition writes it, with what a person is told beside it, and all of it for a machine."""

    text: str
    verdict: Verdict
    remark: str
    facts: dict[str, Any]


@contextmanager
def _open_output(out: Path | None) -> Iterator[TextIO]:
    """Standard output, or a file that takes its name when it is whole; a device or a pipe is written as it is."""
    if out is None:
        yield sys.stdout
        return
    if out.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(out))
    if out.exists() and not out.is_file():
        with out.open("w", encoding="ascii") as file:
            yield file
        return
    out = out.resolve()  # what a link names, and not the link, is replaced
    with atomic_path(out) as partial, partial.open("w", encoding="ascii") as file:
        yield file


def infer(
    model: Annotated[Path, typer.Argument(help="A model of the UAI format, a .uai file.")],
    task: Annotated[
        UaiTask,
        typer.Option(
            help="PR: the partition function; MAR: the marginals; MPE: the best states.", case_sensitive=False
        ),
    ],
    session: SessionOptions,
    evidence: Annotated[Path | None, typer.Option(help="What is known, a .evid file.")] = None,
    method: Annotated[str, typer.Option("--method", "-m", help=f"How: {listing(METHODS)}.")] = "auto",
    setting: SetOption = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Where to write the answer.")] = None,
    strict: Annotated[bool, typer.Option(help="Fail with exit code 4 if the method does not converge.")] = False,
) -> None:
    """Answer a question of the inference competitions (UAI) about a model and evidence.

    Example: relcrf infer grid.uai --evid grid.evid --task MAR --out grid.MAR
    """
    chosen = parse_settings(setting)
    with _open_output(out) as target:
        with session.show_progress() as watch:
            watch.start_phase("reading the model")
            read = read_model(model)
            states = np.full(read.scopes.n_nodes, -1, dtype=np.int64)
            if evidence is not None:
                states = read_evidence(evidence, read.scopes.cardinality)
            left = condition(read.scopes, read.potentials, states)

            def observe(verdict: Verdict) -> None:
                watch.start_phase(f"{method}: {verdict}")

            watch.start_phase(method)
            started = time.perf_counter()
            inference = create_inference(method, left.scopes, chosen, observe)
            try:
                answer = _compute_answer(task, read, left, states, inference)
            except (ValueError, MemoryError) as error:
                hint = "choose another --method or, where memory is short, allow more: --set memory=4000000000"
                message = f"method '{method}' cannot answer {task} here: {error}"
                raise UsageError(Diagnostic("E381", message, hint=hint)) from None
            seconds = time.perf_counter() - started
        if strict and not answer.verdict.is_good and answer.verdict.status != "interrupted":
            message = f"method '{method}': {answer.verdict}"
            raise ConvergenceError(Diagnostic("E402", message, hint="allow more iterations, or damp: see its settings"))
        if out is not None or not session.as_json:
            target.write(answer.text)
    verdict = {"status": answer.verdict.status, "iterations": answer.verdict.iterations}
    verdict |= {
        "residual": answer.verdict.residual,
        "exact_variables": _count_exact_variables(inference, answer.verdict),
    }
    sizes = {"variables": read.scopes.n_nodes, "known": int((states >= 0).sum())}
    if session.as_json:
        facts = {"task": task.value, "method": method, **sizes, "verdict": verdict, **answer.facts}
        print_json(facts | {"seconds": seconds, "out": out})
    else:
        part = (
            ""
            if answer.verdict.status == "exact"
            else f"; {verdict['exact_variables']:,} of {len(left.free_nodes):,} exact"
        )
        print_note(f"{method}: {answer.verdict}{part}{answer.remark}")
    if answer.verdict.status == "interrupted":
        exit_interrupted()


def _count_exact_variables(inference: AbstractInference, verdict: Verdict) -> int:
    """How many of the free variables are inferred exactly."""
    if isinstance(inference, Auto):
        return inference.n_exact_nodes
    return inference.scopes.n_nodes if verdict.status == "exact" else 0


def _compute_answer(
    task: UaiTask, model: UaiModel, left: ConditionedGraph, states: np.ndarray, inference: AbstractInference
) -> _UaiAnswer:
    """The answer about the whole model, from that about the free variables.

    Raises:
        DataError: where what is known cannot be, and more than its probability is asked.
        ValueError: where the method has no answer.
    """
    constant = model.constant + left.constant
    if constant == -np.inf and task is not UaiTask.PR:
        raise _zero_probability_error()
    if task is UaiTask.MPE:
        best = inference.map_states(left.potentials)
        score, bound = (best.score + constant) / LOG10, (best.bound + constant) / LOG10
        if score == -np.inf:
            if best.verdict.status == "exact":
                raise _zero_probability_error()
            raise ValueError("it found no joint state that can be")
        whole = states.copy()
        whole[left.free_nodes] = best.states
        facts: dict[str, Any] = {"states": whole.tolist(), "log10_score": score, "log10_bound": bound}
        remark = f"; log10 of the score {score:.6g}"
        if best.verdict.status != "exact":
            remark += f", at most {bound - score:.3g} from the best" if bound < np.inf else ", no bound"
        return _UaiAnswer(format_states(whole), best.verdict, remark, facts | {"gap": bound - score})
    found = inference.marginals(left.potentials)
    log_partition = found.log_partition + constant if constant > -np.inf else constant  # where the method has none, too
    facts = {"log10_partition": log_partition / LOG10, "possible": log_partition != -np.inf}
    if task is UaiTask.PR:
        if math.isnan(log_partition):
            raise ValueError("it has no partition function")
        return _UaiAnswer(format_partition(log_partition), found.verdict, "", facts)
    if log_partition == -np.inf:
        raise _zero_probability_error()
    nodes = np.zeros(int(model.scopes.state_start[-1]))
    known = np.flatnonzero(states >= 0)
    nodes[model.scopes.state_start[known] + states[known]] = 1.0
    nodes[np.repeat(states < 0, model.scopes.cardinality)] = found.nodes
    tables = np.split(nodes, model.scopes.state_start[1:-1]) if len(states) else []
    facts["marginals"] = [table.tolist() for table in tables]
    return _UaiAnswer(format_marginals(model.scopes.cardinality, nodes), found.verdict, "", facts)


def _zero_probability_error() -> DataError:
    message = "no joint state of the model agrees with the evidence: its probability is 0"
    return DataError(
        Diagnostic("E242", message, hint="mend the evidence, or the zeros of the model; --task PR says -inf")
    )
