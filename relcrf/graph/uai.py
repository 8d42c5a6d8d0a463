"""The UAI text format of the inference competitions (2006-2022): models, evidence and results.

In a table, the last variable of the scope varies fastest, as in `Scopes`. Unary factors of a model are added to the
node tables. Factors without variables are added to a constant. The functions raise a DataError for the first error in a
file, with the location of the error.
"""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np

from relcrf.columns.offsets import entries_of_runs, offsets
from relcrf.errors import DataError, DataLocation, Diagnostic, Source, Span
from relcrf.graph.scopes import Potentials, Scopes

NETWORK_TYPES = ("MARKOV", "BAYES")
MODEL_ERROR, EVIDENCE_ERROR, QUERY_ERROR = "E240", "E241", "E243"
MAX_QUOTED_LINE = 160
"""Maximum length, in characters, of a source line that is quoted below a message."""
MAX_COUNT = np.iinfo(np.int32).max
"""Maximum value of a count; larger counts overflow int32."""
MAX_ROUNDING = 1e-3
"""Maximum rounding of the sum of a distribution in a file."""
MAX_TOTAL_STATES = 1 << 27
"""Maximum total number of states (one gigabyte of node tables), because a short file can declare any number."""

_COMMENT = re.compile(r"^[ \t]*(?:c(?:[ \t][^\n]*)?|[#%][^\n]*|//[^\n]*)$", re.MULTILINE)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_WORD = re.compile(r"\S+", re.ASCII)


@dataclass(frozen=True, eq=False)
class UaiModel:
    """A model read from a file.

    Args:
        constant: Sum of the logs of the factors without variables, in nats.
        upper: Upper bound of the log partition function given any evidence, in nats; about 0 for a Bayesian network.
    """

    scopes: Scopes
    potentials: Potentials
    constant: float
    upper: float = math.inf


class _UaiNumbers:
    """The numbers of a file, with a mapping from each number to its location.

    Args:
        path: The file.
        code: Code of the file's diagnostics.
        has_header: True if a network type precedes the numbers.
    """

    def __init__(self, path: Path, code: str, *, has_header: bool) -> None:
        self.path, self.code, self.has_header, self.network_type = path, code, has_header, ""
        try:
            text = path.read_bytes().decode("utf-8-sig")
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise DataError(Diagnostic(code, f"'{path}' cannot be read: {reason}", hint="provide a UAI file")) from None
        except UnicodeDecodeError:
            hint = "provide an uncompressed UAI file"
            raise DataError(Diagnostic(code, f"'{path}' is not a UTF-8 text file", hint=hint)) from None
        # Replace each comment by blanks of equal length, so that locations are preserved.
        self.text = _COMMENT.sub(lambda m: " " * len(m[0]), text.replace("\r", " "))
        start = 0
        if has_header:
            match = _WORD.search(self.text)
            if match is None or match[0].upper() not in NETWORK_TYPES:
                message = f"expected MARKOV or BAYES at the start of a UAI model, found {_quote_match(match)}"
                raise self._error_at_match(match, message, "provide a model in UAI format")
            self.network_type = match[0].upper()
            start = match.end()
        self.values = self._parse(self.text[start:])

    def _parse(self, text: str) -> np.ndarray:
        if not _WORD.search(text):
            return np.empty(0)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", DeprecationWarning)  # NumPy before 2.4 only warns of invalid numbers
                return np.asarray(np.fromstring(text, sep=" "))
        except (ValueError, DeprecationWarning):
            words = enumerate(_WORD.finditer(text))
            k, word = next((k, m[0]) for k, m in words if not _NUMBER.fullmatch(m[0]))
            raise self.error(k, f"'{_truncate(word)}' is not a number", "correct or remove it") from None

    def __len__(self) -> int:
        return len(self.values)

    def format_number(self, k: int) -> str:
        """Format number `k` for a message."""
        return f"{self.values[k]:.15g}"

    def error(self, k: int, message: str, hint: str) -> DataError:
        """Return an error located at number `k`, or at the end of the file if there is no such number."""
        words = _WORD.finditer(self.text)
        return self._error_at_match(next(islice(words, k + self.has_header, None), None), message, hint)

    def _error_at_match(self, match: re.Match[str] | None, message: str, hint: str) -> DataError:
        begin = match.start() if match else len(self.text.rstrip())
        line_start = self.text.rfind("\n", 0, begin) + 1
        line, column = self.text.count("\n", 0, begin) + 1, begin - line_start + 1
        end = self.text.find("\n", begin)
        location: Span | DataLocation = DataLocation(f"{self.path}:{line}:{column}")
        if (end if end >= 0 else len(self.text)) - line_start <= MAX_QUOTED_LINE:
            width = len(match[0]) if match else 1
            location = Span(Source(str(self.path), self.text), line, column, line, column + width)
        return DataError(Diagnostic(self.code, message, location, hint))

    def require(self, at: int, n: int, subject: str) -> None:
        """Raise a DataError that names the `subject` if fewer than `n` numbers start at position `at`."""
        if at + n > len(self):
            message = f"the file ends within {subject}: expected {n:,} numbers, found {max(0, len(self) - at):,}"
            raise self.error(len(self), message, "check whether the file is truncated")

    def read_integers(self, at: int, n: int, low: int, high: int, subject: str, hint: str) -> np.ndarray:
        """Return the `n` integers from position `at` on, shape (n,), int64.

        Raises:
            DataError: If there are fewer numbers, or one of them is not an integer from `low` to `high`.
        """
        self.require(at, n, subject)
        values = self.values[at : at + n]
        invalid = ~((values >= low) & (values <= high) & (values == np.floor(values)))
        if invalid.any():
            k = at + int(invalid.argmax())
            message = f"{subject} must be an integer from {low} to {high}, not {self.format_number(k)}"
            raise self.error(k, message, hint)
        return values.astype(np.int64)


def _truncate(word: str) -> str:
    return word if len(word) <= 24 else word[:21] + "..."


def _quote_match(match: re.Match[str] | None) -> str:
    return f"'{_truncate(match[0])}'" if match else "an empty file"


def read_model(path: Path) -> UaiModel:
    """Read the model of a `.uai` file, MARKOV or BAYES.

    Raises:
        DataError: If the file cannot be read or does not follow the format.
    """
    numbers = _UaiNumbers(path, MODEL_ERROR, has_header=True)
    (n_nodes,) = numbers.read_integers(
        0, 1, 0, MAX_COUNT, "the number of variables", "the number of variables follows the network type"
    ).tolist()
    subject = "the number of states of each variable"
    cardinality = numbers.read_integers(
        1, n_nodes, 1, MAX_COUNT, subject, "each variable has at least one state"
    ).astype(np.int32)
    if cardinality.sum(dtype=np.float64) > MAX_TOTAL_STATES:
        message = f"the variables have more than {MAX_TOTAL_STATES:,} states in total"
        raise numbers.error(1, message, "check the numbers of states")
    at = 1 + n_nodes
    hint = "the number of factors follows the numbers of states"
    (n_factors,) = numbers.read_integers(at, 1, 0, MAX_COUNT, "the number of factors", hint).tolist()
    start, node, at = _read_scopes(numbers, at + 1, n_nodes, n_factors)
    tables, table_start = _read_tables(numbers, at, cardinality, start, node)
    model = _build_model(cardinality, start, node, tables, table_start)
    is_bayesian = numbers.network_type == "BAYES" and _is_bayesian(cardinality, start, node, tables, table_start)
    return replace(model, upper=MAX_ROUNDING * len(cardinality)) if is_bayesian else model


def _is_bayesian(
    cardinality: np.ndarray, start: np.ndarray, node: np.ndarray, tables: np.ndarray, table_start: np.ndarray
) -> bool:
    """Return whether each factor is a distribution of its last variable, a different one for each factor."""
    children = node[start[1:] - 1] if (np.diff(start) > 0).all() else np.empty(0)
    if len(np.unique(children)) < len(start) - 1 or not len(children):
        return False
    n_rows = np.diff(table_start) // cardinality[children]
    row_start = offsets(np.repeat(cardinality[children], n_rows))
    return bool(np.allclose(np.add.reduceat(tables, row_start[:-1]), 1.0, atol=MAX_ROUNDING))


def _read_scopes(numbers: _UaiNumbers, at: int, n_nodes: int, n_factors: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Read the scopes of all factors; return offsets and variables in CSR form, and the position of the first table."""
    values, begin = numbers.values, at
    arity_positions = []
    for factor in range(n_factors):
        arity = values[at] if at < len(values) else -1.0
        if not 0 <= arity <= n_nodes or arity != int(arity):
            hint = f"the file declares {n_factors:,} factors and {n_nodes:,} variables"
            numbers.read_integers(at, 1, 0, n_nodes, f"the number of variables of factor {factor}", hint)
        arity_positions.append(at)
        at += 1 + int(arity)
    numbers.require(begin, at - begin, "the variables of the factors")
    head = np.array(arity_positions, dtype=np.int64)
    start = offsets(values[head].astype(np.int64))
    is_node = np.ones(at - begin, dtype=bool)
    is_node[head - begin] = False
    position = begin + np.flatnonzero(is_node)
    variables = values[position]
    invalid = ~((variables >= 0) & (variables < n_nodes) & (variables == np.floor(variables)))
    if invalid.any():
        k = int(position[invalid.argmax()])
        message = f"unknown variable {numbers.format_number(k)}; the model has the variables 0 to {n_nodes - 1}"
        raise numbers.error(k, message, "variables are counted from 0")
    node = variables.astype(np.int32)
    factor_of = np.repeat(np.arange(n_factors), np.diff(start))
    order = np.lexsort((node, factor_of))
    repeated = (np.diff(node[order]) == 0) & (np.diff(factor_of[order]) == 0)
    if repeated.any():
        second = int(order[1:][repeated].min())
        message = f"variable {node[second]} occurs twice in factor {factor_of[second]}"
        raise numbers.error(int(position[second]), message, "list each variable of a factor once")
    return start, node, at


def _read_tables(
    numbers: _UaiNumbers, at: int, cardinality: np.ndarray, start: np.ndarray, node: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Read the entries of all tables; return them flat, and the offset of each table."""
    values, n_factors = numbers.values, len(start) - 1
    sizes = np.ones(n_factors)
    nonempty = np.flatnonzero(np.diff(start))
    if len(nonempty):
        with np.errstate(over="ignore"):
            sizes[nonempty] = np.multiply.reduceat(cardinality[node].astype(np.float64), start[nonempty])
    ends = at + np.cumsum(1 + sizes)
    head = ends - 1 - sizes
    present = np.flatnonzero(head < len(values))
    positions = head[present].astype(np.int64)
    invalid = values[positions] != sizes[present]
    if invalid.any():
        k, factor = int(positions[invalid.argmax()]), int(present[invalid.argmax()])
        message = f"the table of factor {factor} must have {sizes[factor]:.15g} entries, not {numbers.format_number(k)}"
        hint = "check the number of entries, and whether the previous table has too few or too many entries"
        raise numbers.error(k, message, hint)
    for factor in np.flatnonzero(ends > len(values))[:1]:
        n_found = max(0, len(values) - int(head[factor]) - 1) if head[factor] < len(values) else 0
        message = f"the file ends within the table of factor {factor}: expected {sizes[factor]:.15g} entries, found {n_found:,}"
        raise numbers.error(len(values), message, "check whether the file is truncated")
    end = int(ends[-1]) if n_factors else at
    if end < len(values):
        hint = "remove them, or correct the number of factors or entries"
        raise numbers.error(end, "unexpected numbers after the last table", hint)
    is_entry = np.ones(end - at, dtype=bool)
    is_entry[positions - at] = False
    tables = values[at:end][is_entry]
    invalid = ~((tables >= 0) & np.isfinite(tables))
    if invalid.any():
        k = at + int(np.flatnonzero(is_entry)[invalid.argmax()])
        message = f"a table entry must be a finite number >= 0, not {numbers.format_number(k)}"
        raise numbers.error(k, message, "write potentials or probabilities, not their logarithms")
    return tables, offsets(sizes)


def _build_model(
    cardinality: np.ndarray, start: np.ndarray, node: np.ndarray, tables: np.ndarray, table_start: np.ndarray
) -> UaiModel:
    with np.errstate(divide="ignore"):
        logs = np.log(tables)
    arity = np.diff(start)
    larger = np.flatnonzero(arity > 1)
    factor_start = offsets(arity[larger])
    scopes = Scopes(cardinality, factor_start, node[entries_of_runs(start, larger)])
    nodes = np.zeros(int(scopes.state_start[-1]))
    single = np.flatnonzero(arity == 1)
    np.add.at(
        nodes, entries_of_runs(scopes.state_start, node[start[single]]), logs[entries_of_runs(table_start, single)]
    )
    constant = float(logs[table_start[:-1][arity == 0]].sum())
    return UaiModel(scopes, Potentials(nodes, logs[entries_of_runs(table_start, larger)]), constant)


def read_evidence(path: Path, cardinality: np.ndarray) -> np.ndarray:
    """Read the evidence of a `.evid` file: `n v1 x1 v2 x2 ...`, optionally after a line with the number of such lines.

    Args:
        cardinality: Cardinality of the model's variables, shape (n_nodes,).

    Returns:
        The state of each variable, -1 if it is not observed; shape (n_nodes,), int64.

    Raises:
        DataError: If the file cannot be read, does not follow the format, or does not match the model.
    """
    numbers = _UaiNumbers(path, EVIDENCE_ERROR, has_header=False)
    states = np.full(len(cardinality), -1, dtype=np.int64)
    at = _find_evidence(numbers)
    if at == len(numbers):
        return states
    hint = "write the evidence as 'n v1 x1 v2 x2 ...', optionally after a line with the number of evidence sets, 1"
    (n,) = numbers.read_integers(at, 1, 0, MAX_COUNT, "the number of observed variables", hint).tolist()
    numbers.require(at + 1, 2 * n, f"{n:,} variables and their states")
    if at + 1 + 2 * n < len(numbers):
        k = at + 1 + 2 * n
        raise numbers.error(k, f"unexpected numbers after the {n:,} variables and their states", hint)
    pairs = numbers.read_integers(
        at + 1, 2 * n, 0, MAX_COUNT, "a variable or a state", "variables and states are counted from 0"
    ).reshape(-1, 2)
    for k, (variable, state) in enumerate(pairs.tolist()):
        position = at + 1 + 2 * k
        if variable >= len(cardinality):
            message = f"unknown variable {variable}; the model has {len(cardinality):,} variables"
            raise numbers.error(position, message, "variables are counted from 0")
        if state >= cardinality[variable]:
            message = f"unknown state {state} of variable {variable}, which has {cardinality[variable]:,} states"
            raise numbers.error(position + 1, message, "states are counted from 0")
        if states[variable] not in (-1, state):
            message = f"variable {variable} is observed in the states {states[variable]} and {state}"
            raise numbers.error(position, message, "keep one of the two observations")
        states[variable] = state
    return states


def _find_evidence(numbers: _UaiNumbers) -> int:
    """Return the position at which the evidence begins; the end of the file if the file is empty or contains only a 0."""
    if not len(numbers) or (len(numbers) == 1 and numbers.values[0] == 0):
        return len(numbers)
    lines = [len(line.split()) for line in numbers.text.splitlines() if line.strip()]
    starts = np.cumsum([0, *lines])
    counts_lines = lines[0] == 1 and len(lines) - 1 == numbers.values[0]
    has_count_line = counts_lines and all(
        1 + 2 * numbers.values[first] == size for first, size in zip(starts[1:], lines[1:], strict=False)
    )
    if has_count_line and len(lines) > 2:
        hint = "keep one set of evidence, after a line with the number 1"
        raise numbers.error(0, f"the file has {len(lines) - 1} sets of evidence; only one is supported", hint)
    fits = 1 + 2 * numbers.values[0] == len(numbers)
    is_one = lines[0] == 1 and numbers.values[0] == 1  # the evidence may span several lines
    return 1 if has_count_line or (is_one and not fits) else 0


def read_query(path: Path, n_nodes: int) -> np.ndarray:
    """Read the variables of a `.query` file, whose states a marginal MAP task asks for: `n v1 v2 ...`.

    Returns:
        The variables in the order of the file, shape (n,), int64.

    Raises:
        DataError: If the file cannot be read, does not follow the format, or does not match the model.
    """
    numbers = _UaiNumbers(path, QUERY_ERROR, has_header=False)
    hint = "write the number of variables of the query, and their indices, counted from 0"
    (n,) = numbers.read_integers(0, 1, 0, n_nodes, "the number of variables of the query", hint).tolist()
    variables = numbers.read_integers(1, n, 0, n_nodes - 1, "a variable of the query", hint)
    if 1 + n < len(numbers):
        raise numbers.error(1 + n, f"unexpected numbers after the {n:,} variables", hint)
    _, first = np.unique(variables, return_index=True)
    if len(first) < n:
        k = int(np.setdiff1d(np.arange(n), first)[0])
        raise numbers.error(1 + k, f"variable {variables[k]} occurs twice", "list each variable of the query once")
    return variables


def format_model(model: UaiModel) -> str:
    """Format a model as the text of a MARKOV file, with numbers in full precision.

    Raises:
        ValueError: If a potential is outside the range of floating-point numbers.
    """
    scopes, potentials = model.scopes.expand_agreements(model.potentials)
    tables = [([v], potentials.nodes[a:b]) for v, (a, b) in enumerate(_run_bounds(scopes.state_start))]
    scope = [scopes.node[a:b].tolist() for a, b in _run_bounds(scopes.start)]
    values = [potentials.factors[a:b] for a, b in _run_bounds(scopes.table_start)]
    tables += zip(scope, values, strict=True)
    tables.append(([], np.array([model.constant])))
    with np.errstate(over="raise", under="raise"):
        try:
            numbers = [np.exp(table).tolist() for _, table in tables]
        except FloatingPointError:
            raise ValueError("a potential overflows or underflows as a floating-point number") from None
    lines = ["MARKOV", str(scopes.n_nodes), " ".join(map(str, scopes.cardinality.tolist())), str(len(tables))]
    lines += [" ".join(map(str, [len(scope_nodes), *scope_nodes])) for scope_nodes, _ in tables]
    lines += [f"\n{len(entries)}\n{' '.join(map(repr, entries))}" for entries in numbers]
    return "\n".join(lines) + "\n"


def _run_bounds(start: np.ndarray) -> list[tuple[int, int]]:
    return list(zip(start[:-1].tolist(), start[1:].tolist(), strict=True))


def format_partition(log_partition: float) -> str:
    """Format the result of a PR task: the log partition function, in base 10.

    Args:
        log_partition: Log partition function in nats.
    """
    return f"PR\n{log_partition / math.log(10):.12g}\n"


def format_marginals(cardinality: np.ndarray, nodes: np.ndarray) -> str:
    """Format the result of a MAR task: the marginals.

    Args:
        nodes: Flat node tables of probabilities.
    """
    probabilities = [f"{p:.10g}" for p in nodes.tolist()]
    bounds = _run_bounds(offsets(cardinality))
    words = [f"{b - a} {' '.join(probabilities[a:b])}" for a, b in bounds]
    return "MAR\n" + " ".join([str(len(cardinality)), *words]) + "\n"


def format_states(states: np.ndarray, task: str = "MPE") -> str:
    """Format the result of an MPE or MMAP task: the most probable joint state.

    Args:
        states: States of all nodes, or of the nodes of the query, shape (n,).
    """
    return f"{task}\n" + " ".join(map(str, [len(states), *states.tolist()])) + "\n"
