"""From a company's exports to a model: `relcrf new` and `auto`, compared with boosted trees on aggregates of the payments.

    python benchmarks/fraud.py          # three minutes

Each seed generates other exports (`relcrf example fraud`). The reviewed customers are divided into five folds; each fold is
predicted by models of the other folds. `flat`: HistGradientBoostingClassifier on the attributes of a customer and on
aggregates of the customer's payments, their merchants and devices. `flat, with users`: in addition, the mean and the largest
number of customers of these devices. `local`: the proposed model without relations. Intervals are 95 % bootstrap intervals
over customers.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from support import BenchmarkParser

from relcrf import api
from relcrf.data.split_plan import parse_split
from relcrf.datasets.fraud import fraud_tables, write_exports
from relcrf.evaluation.predictions import FoldPrediction
from relcrf.execution.memory import DEFAULT_MEMORY
from relcrf.proposal.proposal import propose

PUBLIC_USERS = 50
"""Number of customers above which a device is public and says nothing about its customers."""


@dataclass(frozen=True)
class Row:
    """The ROC AUC of one method on one seed with its 95 % interval, and the gain over `flat` with its interval."""

    seed: int
    name: str
    auc: float
    low: float
    high: float
    gain: float
    gain_low: float
    gain_high: float


def aggregates(tables: dict[str, dict[str, np.ndarray]]) -> tuple[pd.DataFrame, list[str]]:
    """Return the features of the customers in ascending order of their keys, and the names of those on device users."""
    customer, device, merchant, payment = (
        pd.DataFrame(tables[name]) for name in ("customer", "device", "merchant", "payment")
    )
    payment = payment.merge(merchant, left_on="merchant", right_on="id", suffixes=("", "_merchant"))
    payment = payment.merge(device, left_on="device", right_on="id", suffixes=("", "_device"))
    payment["night"] = pd.to_datetime(payment.time).dt.hour < 6
    payment["users"] = payment.device.map(payment.groupby("device").customer.nunique())
    grouped = payment.groupby("customer")
    features = grouped.agg(
        payments=("amount", "size"), mean=("amount", "mean"), largest=("amount", "max"), spread=("amount", "std"),
        night=("night", "mean"), devices=("device", "nunique"), merchants=("merchant", "nunique"),
    )  # fmt: skip
    for column in ("category", "country", "system"):
        shares = payment.groupby(["customer", column]).size().unstack(fill_value=0)
        features = features.join(shares.div(features.payments, axis=0).add_prefix(f"{column}_"))
    private = payment[payment.users <= PUBLIC_USERS].groupby("customer").users
    features["mean_users"], features["largest_users"] = private.mean(), private.max()
    customer = customer.set_index("id").sort_index()
    features = features.reindex(customer.index)
    features["age"], features["limit"] = customer.age, customer.limit
    features["days"] = (pd.Timestamp("2025-01-01") - pd.to_datetime(customer.signup)).dt.days
    return features.join(pd.get_dummies(customer.country)), ["mean_users", "largest_users"]


def positive(folds: tuple[FoldPrediction, ...], n: int, state: int) -> np.ndarray:
    """Return the probability of fraud of each customer that is in a fold."""
    found = np.full(n, np.nan)
    for fold in folds:
        found[fold.variables] = fold.probabilities.reshape(-1, 2)[:, state]
    return found


def measure(seed: int, effort: str, folds: int = 5, n_draws: int = 1000, boosting: int = 100) -> list[Row]:
    """Return the results of all methods on one seed.

    Args:
        boosting: Number of iterations of boosted trees.
    """
    tables = fraud_tables(seed)
    with tempfile.TemporaryDirectory() as folder:
        exports = Path(folder, "exports")
        exports.mkdir()
        write_exports(tables, exports)
        draft = propose(str(exports), Path(folder, "fraud.rcrf"), None, DEFAULT_MEMORY).draft
    grounding = draft.grounding
    (block,) = grounding.blocks
    state = list(block.values).index("yes")
    evaluation = api.evaluate(grounding, ["auto"], parse_split(f"folds={folds}"), settings={"auto": {"effort": effort}})
    results = evaluation.predictions.by_system
    features, user_names = aggregates(tables)
    truth, n = grounding.states == state, grounding.graph.n_variables
    assert n == len(features), "the proposed model predicts one variable for each customer"
    found = {name: positive(results[name], n, state) for name in ("local", "auto")}
    flat = features.drop(columns=user_names)
    for name, X in (("flat", flat), ("flat, with users", features)):
        found[name] = np.full(n, np.nan)
        for fold in results["auto"]:
            train = grounding.states >= 0
            train[fold.variables] = False
            trees = HistGradientBoostingClassifier(max_iter=boosting, random_state=0).fit(X[train], truth[train])
            found[name][fold.variables] = trees.predict_proba(X.iloc[fold.variables])[:, 1]
    known = np.flatnonzero(grounding.states >= 0)
    rng = np.random.default_rng(0)
    draws = [known, *(rng.choice(known, len(known)) for _ in range(n_draws))]
    areas = {name: np.array([roc_auc_score(truth[d], p[d]) for d in draws]) for name, p in found.items()}
    rows = []
    for name, values in areas.items():
        gains = values - areas["flat"]
        low, high, gain_low, gain_high = (*np.quantile(values, (0.025, 0.975)), *np.quantile(gains, (0.025, 0.975)))
        rows.append(Row(seed, name, *map(float, (values[0], low, high, gains[0], gain_low, gain_high))))
    return rows


def main() -> None:
    parser = BenchmarkParser(__doc__, "one seed, and fewer candidates of auto")
    options = parser.parse_args()
    rows = []
    print(f"{'seed':>4} {'method':<18} {'ROC AUC':>8} {'':16} {'gain':>6}")
    for seed in range(1 if options.quick else 3):
        smallest = {"folds": 2, "n_draws": 20, "boosting": 2} if options.smallest else {}
        for row in measure(seed, "quick" if options.quick else "normal", **smallest):
            rows.append(row)
            print(f"{row.seed:>4} {row.name:<18} {row.auc:8.3f} [{row.low:.3f}, {row.high:.3f}]  {row.gain:+6.3f} "
                  f"[{row.gain_low:+.3f}, {row.gain_high:+.3f}]", flush=True)  # fmt: skip
    print(json.dumps({"rows": [asdict(row) for row in rows]}))


if __name__ == "__main__":
    main()
