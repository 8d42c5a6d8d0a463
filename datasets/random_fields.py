"""Generator of rows from a random field with large factors, in which variables are inputs, outputs or hidden.

    python datasets/random_fields.py --rows 1000 --out /tmp/fields

The synthetic experiment of Stoyanov & Eisner, Fast and accurate prediction via evidence-specific MRF structure (2012): 200
factors over four of 50 binary variables each, with log potentials drawn from N(0, 1). In every row, each variable is an
input (observed), an output (a query, observed in training) or hidden, with equal probabilities. The tables are for
models/random_field.rcrf, which has only pairwise factors and therefore cannot represent the generating field.

Rows are drawn by Gibbs sampling with replica exchange, because plain Gibbs chains stay in one mode. Test: 1,500 chains
start at random and 1,500 in the best mode; the root mean square difference of the variables' means in the two groups is
0.45 (seed 0) or 0.41 (seed 1) after 400 sweeps of plain Gibbs sampling. With a ladder of eight temperatures it is 0.06
or 0.01 after 200 sweeps, and 0.01, the sampling noise, after 400 sweeps. The sampler changes the results: on rows of
plain chains (100 sweeps, seed 1), the error of a constant prediction is 0.217, and the error of the field's own
predictions is 0.051 instead of the expected 0.042. With exchange, these errors are 0.061 and 0.029 (expected 0.029).

Source of the exchange: Hukushima & Nemoto, Exchange Monte Carlo method and application to spin glass simulations (1996).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import expit

VARIABLES, FACTORS, ARITY = 50, 200, 4
LADDER = np.geomspace(0.15, 1.0, 8)
"""Inverse temperature of each rung, which multiplies the log potentials; rows are taken from the last rung."""
PLAIN_GIBBS = np.ones(1)
"""Ladder of plain Gibbs sampling, with a single rung."""
SWEEPS = 600
"""Number of sweeps before a row is taken."""
CHUNK_ROWS = 256
"""Number of rows drawn at a time; the states and tables of so few rows fit into the CPU cache."""
INPUT, OUTPUT, HIDDEN = 0, 1, 2
STATUSES = ("input", "output", "hidden")


@dataclass(frozen=True)
class RandomField:
    """A random field, from which rows are drawn: `P(row) ~ exp(sum of the factors' log potentials)`.

    Args:
        scopes: Distinct variables of each factor, shape (n_factors, arity).
        log_potentials: In nats, shape (n_factors, 2**arity); the first variable of a scope is the highest bit.
    """

    n_variables: int
    scopes: np.ndarray
    log_potentials: np.ndarray

    def score(self, states: np.ndarray) -> np.ndarray:
        """Return the sum of the log potentials, shape (...), for states of shape (n_variables, ...)."""
        cells = _cells(states, self.scopes)
        return np.asarray(sum(table[cell] for table, cell in zip(self.log_potentials, cells, strict=True)))


@dataclass(frozen=True)
class FieldRows:
    """Rows, and the status of each variable. Both arrays, if flattened, are in the order of the grounding's variables.

    Args:
        values: Whether each variable is on, shape (n, n_variables), bool.
        statuses: `INPUT`, `OUTPUT` or `HIDDEN`, of the same shape, int8.
    """

    values: np.ndarray
    statuses: np.ndarray


@dataclass(frozen=True)
class BayesError:
    """The error of the field's own predictions of the outputs.

    Args:
        error: Mean over rows of the mean over outputs of (b - y)^2, where b is the probability given the inputs, and y
            the value. It is computed as (b - y)(b' - y) from two independent estimates, to exclude the noise of b.
        standard_error: Standard error of `error`, from the variance over rows.
        expected: The same mean for b (1 - b) instead; it equals `error`, up to noise, if the rows follow the field.
        noise: Mean square of the sampling error of b.
    """

    error: float
    standard_error: float
    expected: float
    noise: float


def make_field(
    rng: np.random.Generator, n_variables: int = VARIABLES, n_factors: int = FACTORS, arity: int = ARITY
) -> RandomField:
    scopes = np.stack([rng.choice(n_variables, size=arity, replace=False) for _ in range(n_factors)])
    return RandomField(n_variables, scopes, rng.normal(size=(n_factors, 1 << arity)))


def draw(
    field: RandomField, n: int, rng: np.random.Generator, sweeps: int = SWEEPS, ladder: np.ndarray = LADDER
) -> np.ndarray:
    """Draw independent rows, each from a separate ladder; shape (n, n_variables), bool.

    Args:
        sweeps: Number of sweeps of all rungs before a row is taken from the last rung.
        ladder: `LADDER` or `PLAIN_GIBBS`.
    """
    unknown = np.zeros((n, field.n_variables), dtype=bool)
    parts = [
        _parallel_tempering(field, values, observed, rng, sweeps, 0, ladder)[0]
        for values, observed in _chunks(unknown, unknown)
    ]
    return np.concatenate(parts)


def make_rows(
    field: RandomField, n: int, rng: np.random.Generator, sweeps: int = SWEEPS, ladder: np.ndarray = LADDER
) -> FieldRows:
    """Draw rows with `draw`, and draw the statuses of the variables independently and uniformly."""
    values = draw(field, n, rng, sweeps, ladder)
    return FieldRows(values, rng.integers(len(STATUSES), size=values.shape, dtype=np.int8))


def probabilities(
    field: RandomField, rows: FieldRows, rng: np.random.Generator, sweeps: int = SWEEPS, burn_in: int = SWEEPS // 3
) -> np.ndarray:
    """Estimate the probability that each variable is on given the inputs of the row, shape (n, n_variables).

    The estimate is the average, over Gibbs sweeps, of the conditional probability given all other variables.

    Args:
        sweeps: Number of averaged sweeps.
        burn_in: Number of sweeps before the averaged sweeps.
    """
    observed = rows.statuses == INPUT
    parts = [
        _parallel_tempering(field, v, k, rng, burn_in, sweeps, LADDER)[1] for v, k in _chunks(rows.values, observed)
    ]
    return np.concatenate(parts)


def estimate_bayes_error(
    field: RandomField, rows: FieldRows, rng: np.random.Generator, sweeps: int = SWEEPS
) -> BayesError:
    """Estimate the error of the field's own predictions from two independent runs of `probabilities`."""
    first, second = (probabilities(field, rows, rng, sweeps) for _ in range(2))
    error, per_row = _mean_over_outputs(rows, (first - rows.values) * (second - rows.values))
    expected, _ = _mean_over_outputs(rows, 0.5 * (first * (1.0 - second) + second * (1.0 - first)))
    noise, _ = _mean_over_outputs(rows, 0.5 * (first - second) ** 2)
    return BayesError(error, float(per_row.std(ddof=1) / np.sqrt(len(per_row))), expected, noise)


def squared_error_loss(rows: FieldRows, probability: np.ndarray) -> float:
    """Return the mean over rows of the mean over outputs of (b - y)^2, for b that broadcasts to (n, n_variables)."""
    return _mean_over_outputs(rows, (probability - rows.values) ** 2)[0]


def constant_prediction(training: FieldRows) -> np.ndarray:
    """Return the frequency with which each variable is on among the observed training values; shape (n_variables,)."""
    return np.ma.masked_array(training.values, training.statuses == HIDDEN).mean(axis=0).filled(0.5)


def tables(rows: FieldRows, *, with_outputs: bool) -> dict[str, pd.DataFrame]:
    """Return tables for models/random_field.rcrf; an unobserved variable is listed without a value.

    Args:
        with_outputs: Whether outputs are observed, as in training.
    """
    n, n_variables = rows.values.shape
    observed = rows.statuses <= (OUTPUT if with_outputs else INPUT)
    value = pd.Series(rows.values.ravel()).astype("boolean").mask(~observed.ravel())
    return {
        "row": pd.DataFrame({"id": np.arange(n)}),
        "on": pd.DataFrame(
            {"row": np.repeat(np.arange(n), n_variables), "state": np.tile(_names(n_variables), n), "value": value}
        ),
    }


def truth_table(rows: FieldRows) -> pd.DataFrame:
    """Return a table of all variables of all rows, with the columns row, state (the variable), status and value."""
    listed = tables(rows, with_outputs=True)["on"]
    status = np.array(STATUSES, dtype=object)[rows.statuses.ravel()]
    return listed.assign(value=rows.values.ravel(), status=status)[["row", "state", "status", "value"]]


def _names(n_variables: int) -> np.ndarray:
    width = len(str(n_variables - 1))
    return np.array([f"s{k:0{width}}" for k in range(n_variables)], dtype=object)


def _chunks(values: np.ndarray, observed: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for lo in range(0, len(values), CHUNK_ROWS):
        yield values[lo : lo + CHUNK_ROWS], observed[lo : lo + CHUNK_ROWS]


def _mean_over_outputs(rows: FieldRows, values: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the mean over rows of the mean over outputs, and the mean of each row that has outputs."""
    is_output = rows.statuses == OUTPUT
    has_outputs = is_output.any(axis=1)
    per_row = (values * is_output)[has_outputs].sum(axis=1) / is_output[has_outputs].sum(axis=1)
    return float(per_row.mean()), per_row


def _cells(states: np.ndarray, variables: np.ndarray) -> np.ndarray:
    """Return the index of each factor's table cell, shape (n_factors, ...); `states` has shape (n_variables, ...)."""
    cells = states[variables[:, 0]].astype(np.intp)
    for column in variables.T[1:]:
        cells = cells << 1 | states[column]
    return cells


class _Conditional:
    """The log odds that a variable is on, given all other variables.

    For each factor, `odds` has, from index `first`, the log potentials with the variable on minus those with it off.
    """

    def __init__(self, field: RandomField, variable: int) -> None:
        factor, place = np.nonzero(field.scopes == variable)
        arity = field.scopes.shape[1]
        others = np.arange(arity)[None] != place[:, None]
        self.others = field.scopes[factor][others].reshape(len(factor), arity - 1)
        rest = 1 << (arity - 1)
        cell, bit = np.arange(rest), arity - 1 - place[:, None]
        off = cell >> bit << bit + 1 | cell & (1 << bit) - 1
        tables = field.log_potentials[factor[:, None]]
        odds = np.take_along_axis(tables[:, 0], off | 1 << bit, axis=1) - np.take_along_axis(tables[:, 0], off, axis=1)
        self.odds = odds.ravel().astype(np.float32)
        self.first = rest * np.arange(len(factor))[:, None, None]

    def __call__(self, states: np.ndarray) -> np.ndarray:
        """Return the log odds, shape (n_rungs, n), for states of shape (n_variables, n_rungs, n)."""
        return np.asarray(self.odds[_cells(states, self.others) + self.first].sum(axis=0))


def _parallel_tempering(
    field: RandomField,
    values: np.ndarray,
    observed: np.ndarray,
    rng: np.random.Generator,
    burn_in: int,
    counted_sweeps: int,
    ladder: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Sample the unobserved variables of rows by Gibbs sampling with replica exchange on a ladder of temperatures.

    Returns:
        The final states (bool), and the mean of the conditional probabilities over the sweeps after the burn-in. Both
        arrays have shape (n, n_variables). If `counted_sweeps` is 0, the mean of an unobserved variable is nan.
    """
    free = ~observed.T
    beta = ladder.astype(np.float32)[:, None]
    states = (rng.random((field.n_variables, len(beta), len(values)), dtype=np.float32) < 0.5).astype(np.uint8)
    np.copyto(states, values.T[:, None], where=observed.T[:, None])
    conditionals = [_Conditional(field, v) for v in range(field.n_variables)]
    total = np.zeros(free.shape)
    for sweep in range(burn_in + counted_sweeps):
        uniform = rng.random(states.shape, dtype=np.float32)
        for v, log_odds in enumerate(conditionals):
            probability = expit(beta * log_odds(states))
            np.copyto(states[v], uniform[v] < probability, where=free[v])
            if sweep >= burn_in:
                total[v] += probability[-1]
        _exchange(field, states, rng, ladder)
    mean = np.where(free, total / counted_sweeps if counted_sweeps else np.nan, values.T)
    return states[:, -1].T.astype(bool), np.ascontiguousarray(mean.T)


def _exchange(field: RandomField, states: np.ndarray, rng: np.random.Generator, ladder: np.ndarray) -> None:
    """Swap states of adjacent rungs with Metropolis acceptance: first of pairs (0, 1), (2, 3), then (1, 2), (3, 4)."""
    score = field.score(states)
    for start in (0, 1):
        low = np.arange(start, len(ladder) - 1, 2)
        gain = (ladder[low] - ladder[low + 1])[:, None] * (score[low + 1] - score[low])
        rung, row = np.nonzero(np.log(rng.random(gain.shape)) < gain)
        below, above = low[rung], low[rung] + 1
        states[:, below, row], states[:, above, row] = states[:, above, row], states[:, below, row]
        score[below, row], score[above, row] = score[above, row], score[below, row]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1000, help="Number of training rows, and of test rows.")
    parser.add_argument("--sweeps", type=int, default=SWEEPS, help="Number of sweeps before a row is taken.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--out", type=Path, required=True, help="Folder to write: training, test, and the truth of both."
    )
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    field = make_field(rng)
    for part in ("training", "test"):
        rows = make_rows(field, options.rows, rng, options.sweeps)
        folder = options.out / part
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in tables(rows, with_outputs=part == "training").items():
            table.to_parquet(folder / f"{name}.parquet")
        truth_table(rows).to_parquet(options.out / f"{part}_truth.parquet")
    print(f"wrote {options.rows:,} rows for training and for the test to {options.out}")


if __name__ == "__main__":
    main()
