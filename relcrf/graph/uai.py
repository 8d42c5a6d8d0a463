"""The UAI format: models, evidence and answers of the inference competitions (2006-2022), as text.

Tables have the last variable of their scope the fastest, as `Scopes` does. A model's factors over one variable become
part of that node's table, those over none a constant. What a file gets wrong is one DataError with its place.
"""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from relcrf.columns.offsets import entries_of_runs, offsets
from relcrf.errors import DataError, DataLocation, Diagnostic, Source, Span
from relcrf.graph.scopes import Potentials, Scopes

NETWORK_TYPES = ("MARKOV", "BAYES")
MODEL_ERROR, EVIDENCE_ERROR = "E240", "E241"
MAX_QUOTED_LINE = 160
"""Characters of a line that is still shown under a message."""
MAX_COUNT = np.iinfo(np.int32).max
"""Number that a count may have."""
MAX_TOTAL_STATES = 1 << 27
"""Of all variables together: a gigabyte. A file may name more than it has numbers for."""

_COMMENT = re.compile(r"^c(?:[ \t][^\n]*)?$", re.MULTILINE)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_WORD = re.compile(r"\S+", re.ASCII)


@dataclass(frozen=True, eq=False)
class UaiModel:
    """A model of a file: what inference takes, and the log of the factors over no variable, in nats."""

    scopes: Scopes
    potentials: Potentials
    constant: float


class _UaiNumbers:
    """The numbers of a file, and the way back from each to its place.

    Args:
        path: the file. code: of its diagnostics. has_kind: whether a word stands before the numbers.
    """

    def __init__(self, path: Path, code: str, *, has_kind: bool) -> None:
        self.path, self.code, self.has_header = path, code, has_kind
        try:
            text = path.read_bytes().decode("utf-8-sig")
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise DataError(Diagnostic(code, f"'{path}' cannot be read: {reason}", hint="name a UAI file")) from None
        except UnicodeDecodeError:
            raise DataError(Diagnostic(code, f"'{path}' is no text", hint="name a UAI file, unpacked")) from None
        # Comments become blanks, so that all else stays where it is.
        self.text = _COMMENT.sub(lambda m: " " * len(m[0]), text.replace("\r", " "))
        start = 0
        if has_kind:
            found = _WORD.search(self.text)
            if found is None or found[0] not in NETWORK_TYPES:
                message = f"a UAI model begins with MARKOV or BAYES, and this with {_quote_match(found)}"
                raise self._error_at_match(found, message, "name a model of the UAI format")
            start = found.end()
        self.values = self._parse(self.text[start:])

    def _parse(self, text: str) -> np.ndarray:
        if not _WORD.search(text):
            return np.empty(0)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", DeprecationWarning)  # NumPy before 2.4 warns of what is no number
                return np.asarray(np.fromstring(text, sep=" "))
        except (ValueError, DeprecationWarning):
            words = enumerate(_WORD.finditer(text))
            k, word = next((k, m[0]) for k, m in words if not _NUMBER.fullmatch(m[0]))
            raise self.error(k, f"'{_truncate(word)}' is no number", "mend or remove it") from None

    def __len__(self) -> int:
        return len(self.values)

    def format_number(self, k: int) -> str:
        """Number `k` as people read it."""
        return f"{self.values[k]:.15g}"

    def error(self, k: int, message: str, hint: str) -> DataError:
        """What is wrong with number `k`; behind the last it is the end of the file."""
        words = _WORD.finditer(self.text)
        return self._error_at_match(next(islice(words, k + self.has_header, None), None), message, hint)

    def _error_at_match(self, match: re.Match[str] | None, message: str, hint: str) -> DataError:
        begin = match.start() if match else len(self.text.rstrip())
        before = self.text.rfind("\n", 0, begin) + 1
        line, column = self.text.count("\n", 0, begin) + 1, begin - before + 1
        end = self.text.find("\n", begin)
        place: Span | DataLocation = DataLocation(f"{self.path}:{line}:{column}")
        if (end if end >= 0 else len(self.text)) - before <= MAX_QUOTED_LINE:
            width = len(match[0]) if match else 1
            place = Span(Source(str(self.path), self.text), line, column, line, column + width)
        return DataError(Diagnostic(self.code, message, place, hint))

    def require(self, at: int, n: int, what: str) -> None:
        """Raises DataError where there are no `n` numbers from `at` on."""
        if at + n > len(self):
            message = (
                f"the file ends within {what}: {n:,} numbers are expected, and {max(0, len(self) - at):,} are there"
            )
            raise self.error(len(self), message, "the file may have been cut short")

    def read_integers(self, at: int, n: int, low: int, high: int, what: str, hint: str) -> np.ndarray:
        """The whole numbers at `at` and after, all of which are from `low` to `high`; shape (n,), int64."""
        self.require(at, n, what)
        values = self.values[at : at + n]
        wrong = ~((values >= low) & (values <= high) & (values == np.floor(values)))
        if wrong.any():
            k = at + int(wrong.argmax())
            raise self.error(k, f"{what} is a whole number from {low} to {high}, and not {self.format_number(k)}", hint)
        return values.astype(np.int64)


def _truncate(word: str) -> str:
    return word if len(word) <= 24 else word[:21] + "..."


def _quote_match(match: re.Match[str] | None) -> str:
    return f"'{_truncate(match[0])}'" if match else "nothing"


def read_model(path: Path) -> UaiModel:
    """The model of a `.uai` file, MARKOV or BAYES.

    Raises:
        DataError: for a file that cannot be read or does not follow the format.
    """
    numbers = _UaiNumbers(path, MODEL_ERROR, has_kind=True)
    (n_nodes,) = numbers.read_integers(
        0, 1, 0, MAX_COUNT, "the number of variables", "it stands behind the first word"
    ).tolist()
    what = "the number of states of each variable"
    cardinality = numbers.read_integers(1, n_nodes, 1, MAX_COUNT, what, "each variable has one state or more").astype(
        np.int32
    )
    if cardinality.sum(dtype=np.float64) > MAX_TOTAL_STATES:
        message = f"the variables have more than {MAX_TOTAL_STATES:,} states together"
        raise numbers.error(1, message, "the numbers of states may be wrong")
    at = 1 + n_nodes
    hint = "it stands behind the numbers of states"
    (n_factors,) = numbers.read_integers(at, 1, 0, MAX_COUNT, "the number of factors", hint).tolist()
    start, node, at = _read_scopes(numbers, at + 1, n_nodes, n_factors)
    tables, table_start = _read_tables(numbers, at, cardinality, start, node)
    return _build_model(cardinality, start, node, tables, table_start)


def _read_scopes(numbers: _UaiNumbers, at: int, n_nodes: int, n_factors: int) -> tuple[np.ndarray, np.ndarray, int]:
    """The variables of all factors as CSR, and where the tables begin."""
    values, begin = numbers.values, at
    heads = []
    for factor in range(n_factors):
        arity = values[at] if at < len(values) else -1.0
        if not 0 <= arity <= n_nodes or arity != int(arity):
            hint = f"there are {n_factors:,} factors and {n_nodes:,} variables"
            numbers.read_integers(at, 1, 0, n_nodes, f"the number of variables of factor {factor}", hint)
        heads.append(at)
        at += 1 + int(arity)
    numbers.require(begin, at - begin, "the variables of the factors")
    head = np.array(heads, dtype=np.int64)
    start = offsets(values[head].astype(np.int64))
    is_node = np.ones(at - begin, dtype=bool)
    is_node[head - begin] = False
    place = begin + np.flatnonzero(is_node)
    found = values[place]
    wrong = ~((found >= 0) & (found < n_nodes) & (found == np.floor(found)))
    if wrong.any():
        k = int(place[wrong.argmax()])
        message = f"there is no variable {numbers.format_number(k)}: they are 0 to {n_nodes - 1}"
        raise numbers.error(k, message, "variables are counted from 0")
    node = found.astype(np.int32)
    factor_of = np.repeat(np.arange(n_factors), np.diff(start))
    order = np.lexsort((node, factor_of))
    again = (np.diff(node[order]) == 0) & (np.diff(factor_of[order]) == 0)
    if again.any():
        second = int(order[1:][again].min())
        message = f"variable {node[second]} stands twice in factor {factor_of[second]}"
        raise numbers.error(int(place[second]), message, "name each variable of a factor once")
    return start, node, at


def _read_tables(
    numbers: _UaiNumbers, at: int, cardinality: np.ndarray, start: np.ndarray, node: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The entries of all tables, flat, and where each begins."""
    values, n_factors = numbers.values, len(start) - 1
    sizes = np.ones(n_factors)
    some = np.flatnonzero(np.diff(start))
    if len(some):
        with np.errstate(over="ignore"):
            sizes[some] = np.multiply.reduceat(cardinality[node].astype(np.float64), start[some])
    ends = at + np.cumsum(1 + sizes)
    head = ends - 1 - sizes
    there = np.flatnonzero(head < len(values))
    places = head[there].astype(np.int64)
    wrong = values[places] != sizes[there]
    if wrong.any():
        k, factor = int(places[wrong.argmax()]), int(there[wrong.argmax()])
        message = f"the table of factor {factor} has {sizes[factor]:.15g} entries, and not {numbers.format_number(k)}"
        hint = "the number of entries stands before them; the table before may have too few or too many"
        raise numbers.error(k, message, hint)
    for factor in np.flatnonzero(ends > len(values))[:1]:
        here = max(0, len(values) - int(head[factor]) - 1) if head[factor] < len(values) else 0
        message = (
            f"the file ends within the table of factor {factor}: of {sizes[factor]:.15g} entries {here:,} are there"
        )
        raise numbers.error(len(values), message, "the file may have been cut short")
    end = int(ends[-1]) if n_factors else at
    if end < len(values):
        raise numbers.error(end, "there are numbers behind the last table", "remove them, or count factors and entries")
    is_entry = np.ones(end - at, dtype=bool)
    is_entry[places - at] = False
    tables = values[at:end][is_entry]
    bad = ~((tables >= 0) & np.isfinite(tables))
    if bad.any():
        k = at + int(np.flatnonzero(is_entry)[bad.argmax()])
        message = f"an entry of a table is a number from 0, and not {numbers.format_number(k)}"
        raise numbers.error(k, message, "tables hold potentials or probabilities, and not their logarithms")
    return tables, offsets(sizes)


def _build_model(
    cardinality: np.ndarray, start: np.ndarray, node: np.ndarray, tables: np.ndarray, table_start: np.ndarray
) -> UaiModel:
    with np.errstate(divide="ignore"):
        logs = np.log(tables)
    arity = np.diff(start)
    large = np.flatnonzero(arity > 1)
    own = offsets(arity[large])
    scopes = Scopes(cardinality, own, node[entries_of_runs(start, large)])
    nodes = np.zeros(int(scopes.state_start[-1]))
    single = np.flatnonzero(arity == 1)
    np.add.at(
        nodes, entries_of_runs(scopes.state_start, node[start[single]]), logs[entries_of_runs(table_start, single)]
    )
    constant = float(logs[table_start[:-1][arity == 0]].sum())
    return UaiModel(scopes, Potentials(nodes, logs[entries_of_runs(table_start, large)]), constant)


def read_evidence(path: Path, cardinality: np.ndarray) -> np.ndarray:
    """States of a `.evid` file: `n v1 x1 v2 x2 ...`, or so in a line of its own behind the number of such lines.

    Args:
        cardinality: of the model's variables, shape (n_nodes,).

    Returns:
        The state of each variable, -1 where it is not known; shape (n_nodes,), int64.

    Raises:
        DataError: for a file that cannot be read, does not follow the format, or does not fit the model.
    """
    numbers = _UaiNumbers(path, EVIDENCE_ERROR, has_kind=False)
    states = np.full(len(cardinality), -1, dtype=np.int64)
    at = _find_evidence(numbers)
    if at == len(numbers):
        return states
    hint = "evidence is 'n v1 x1 v2 x2 ...', in one line, or after a line with the number of such lines, 1"
    (n,) = numbers.read_integers(at, 1, 0, MAX_COUNT, "the number of known variables", hint).tolist()
    numbers.require(at + 1, 2 * n, f"{n:,} variables and their states")
    if at + 1 + 2 * n < len(numbers):
        k = at + 1 + 2 * n
        raise numbers.error(k, f"there are numbers behind the {n:,} variables and their states", hint)
    pairs = numbers.read_integers(
        at + 1, 2 * n, 0, MAX_COUNT, "a variable or a state", "both are counted from 0"
    ).reshape(-1, 2)
    for k, (variable, state) in enumerate(pairs.tolist()):
        place = at + 1 + 2 * k
        if variable >= len(cardinality):
            message = f"there is no variable {variable}: the model has {len(cardinality):,}"
            raise numbers.error(place, message, "variables are counted from 0")
        if state >= cardinality[variable]:
            message = f"variable {variable} has no state {state}: it has {cardinality[variable]:,}"
            raise numbers.error(place + 1, message, "states are counted from 0")
        if states[variable] >= 0:
            raise numbers.error(place, f"variable {variable} stands twice", "name each known variable once")
        states[variable] = state
    return states


def _find_evidence(numbers: _UaiNumbers) -> int:
    """Where the one sample begins; at the end of the file where there is none."""
    if not len(numbers) or (len(numbers) == 1 and numbers.values[0] == 0):
        return len(numbers)
    lines = [len(line.split()) for line in numbers.text.splitlines() if line.strip()]
    starts = np.cumsum([0, *lines])
    stands_alone = lines[0] == 1 and len(lines) - 1 == numbers.values[0]
    is_sampled = stands_alone and all(
        1 + 2 * numbers.values[first] == size for first, size in zip(starts[1:], lines[1:], strict=False)
    )
    if is_sampled and len(lines) > 2:
        hint = "keep one line of evidence, and 1 before it"
        raise numbers.error(0, f"there are {len(lines) - 1} sets of evidence, and one is asked about at a time", hint)
    fits = 1 + 2 * numbers.values[0] == len(numbers)
    is_one = lines[0] == 1 and numbers.values[0] == 1  # whose line may be broken
    return 1 if is_sampled or (is_one and not fits) else 0


def format_model(model: UaiModel) -> str:
    """A MARKOV file of the model, with numbers to all digits.

    Raises:
        ValueError: where a potential is outside the range of floating-point numbers.
    """
    scopes, potentials = model.scopes.expand_agreements(model.potentials)
    tables = [([v], potentials.nodes[a:b]) for v, (a, b) in enumerate(_slices(scopes.state_start))]
    scope = [scopes.node[a:b].tolist() for a, b in _slices(scopes.start)]
    values = [potentials.factors[a:b] for a, b in _slices(scopes.table_start)]
    tables += zip(scope, values, strict=True)
    tables.append(([], np.array([model.constant])))
    with np.errstate(over="raise", under="raise"):
        try:
            numbers = [np.exp(table).tolist() for _, table in tables]
        except FloatingPointError:
            raise ValueError(
                "a potential is too large or too small to be written as it is, without a logarithm"
            ) from None
    lines = ["MARKOV", str(scopes.n_nodes), " ".join(map(str, scopes.cardinality.tolist())), str(len(tables))]
    lines += [" ".join(map(str, [len(over), *over])) for over, _ in tables]
    lines += [f"\n{len(entries)}\n{' '.join(map(repr, entries))}" for entries in numbers]
    return "\n".join(lines) + "\n"


def _slices(start: np.ndarray) -> list[tuple[int, int]]:
    return list(zip(start[:-1].tolist(), start[1:].tolist(), strict=True))


def format_partition(log_partition: float) -> str:
    """The answer to PR. Args: log_partition: in nats; it is written to base 10."""
    return f"PR\n{log_partition / math.log(10):.12g}\n"


def format_marginals(cardinality: np.ndarray, nodes: np.ndarray) -> str:
    """The answer to MAR. Args: nodes: flat node tables of probabilities."""
    probabilities = [f"{p:.10g}" for p in nodes.tolist()]
    slices = _slices(offsets(cardinality))
    words = [f"{b - a} {' '.join(probabilities[a:b])}" for a, b in slices]
    return "MAR\n" + " ".join([str(len(cardinality)), *words]) + "\n"


def format_states(states: np.ndarray) -> str:
    """The answer to MPE. Args: states: shape (n_nodes,)."""
    return "MPE\n" + " ".join(map(str, [len(states), *states.tolist()])) + "\n"
