"""Comparison of runs on the same held-out labels; their models may differ, but must predict the same attribute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from relcrf.backends.learned_model import LearnedModel
from relcrf.columns.offsets import offsets
from relcrf.data.split_plan import SplitPlan
from relcrf.errors import Diagnostic, UsageError, listing
from relcrf.evaluation.number_measures import NumberPredictions, ScoredNumbers
from relcrf.evaluation.predictions import MAJORITY, FoldPrediction, Predictions, predicted_blocks
from relcrf.evaluation.runner import predict_fold_with_model, predict_frequencies
from relcrf.evaluation.splits import Fold, hold_out, labelled_in_grounding
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.variables import VariableBlock
from relcrf.inference.gaussian import NumberMarginals
from relcrf.inference.result import Observer, Verdict, ignore_progress


@dataclass(frozen=True, eq=False)
class GroundedRun:
    """A run with the ground graph of its model on the common tables."""

    name: str
    learned: LearnedModel
    grounding: Grounding


@dataclass(frozen=True, eq=False)
class RunScores:
    """The predictions of several runs of the same labels.

    Args:
        predictions: The predictions of `MAJORITY` and of the runs, by their names.
        verdicts: The convergence status of inference, by the name of the run.
        n_unmatched: The number of held-out labels of the first run that are not scored, because another run has no such
            variable, or the split does not hold it out of that run.
    """

    predictions: Predictions
    verdicts: Mapping[str, Verdict]
    n_unmatched: int


def score_runs(runs: Sequence[GroundedRun], plan: SplitPlan, observe: Observer = ignore_progress) -> RunScores:
    """Predict the labels that a split holds out of all runs with each run.

    Variables of different runs are matched by their names, and states by their values. A random split holds out other labels of
    a model with other variables; each run is scored, and its evidence hidden, as its training held out labels.

    Raises:
        UsageError: The runs predict no common attribute, or no label is held out (E464).
    """
    first = runs[0].grounding
    matches = (_match_variables(block, runs) for block in predicted_blocks(first))
    shared = [each for each in matches if each is not None]
    if not shared:
        predicted = "; ".join(
            f"{run.name} predicts {listing(each.name for each in predicted_blocks(run.grounding))}" for run in runs
        )
        message = f"the runs predict no common attribute: {predicted}"
        raise UsageError(Diagnostic("E464", message, hint="compare runs that predict the same attribute"))
    labelled, held_out = labelled_in_grounding(first), hold_out(first, plan)
    hidden_by_run = [held_out.hidden, *(_held_out_variables(run.grounding, plan) for run in runs[1:])]
    comparable = np.zeros_like(labelled)
    for each in shared:
        comparable[each.block.start : each.block.start + each.block.count] = each.held_out_of_all(hidden_by_run)
    fold = replace(held_out, test=held_out.test & comparable).fold("held out", labelled)
    if not fold.n_test:
        message = "no labels are held out that all runs predict"
        raise UsageError(Diagnostic("E464", message, hint="choose a larger part with --split, such as hide=0.2"))
    by_system = {MAJORITY: [_unify_states(shared, 0, fold, predict_frequencies(first, fold))]}
    verdicts = {}
    for k, run in enumerate(runs):
        test = _translate_mask(shared, k, run.grounding, fold.test)
        hidden = _translate_mask(shared, k, run.grounding, fold.hidden)
        hidden |= hidden_by_run[k] & labelled_in_grounding(run.grounding)
        own_fold = Fold.from_test(fold.name, test, hidden=hidden & ~test)
        prediction, inferred = predict_fold_with_model(run.learned, run.grounding, own_fold, observe)
        by_system[run.name] = [_unify_states(shared, k, fold, prediction)]
        verdicts[run.name] = inferred.verdict
    blocks, train = tuple(each.block for each in shared), fold.train_mask(labelled)
    n_train = [[int(train[block.start : block.start + block.count].sum()) for block in blocks]]
    predictions = Predictions(blocks, first.component, np.array(n_train), by_system, {})
    return RunScores(predictions, verdicts, int((labelled & held_out.test & ~comparable).sum()))


def _held_out_variables(grounding: Grounding, plan: SplitPlan) -> np.ndarray:
    """Return the mask of the variables that a plan holds out; empty if the graph has none of the named folds."""
    try:
        return hold_out(grounding, plan).hidden
    except UsageError as error:
        if error.diagnostics[0].code != "E340":
            raise
        return np.zeros(grounding.graph.n_variables, dtype=bool)


@dataclass(frozen=True, eq=False)
class _SharedVariables:
    """The variables of one attribute or relation in several runs.

    Args:
        block: The block of the first run, with the values of all runs; its own values are first.
        own_blocks: The block of each run.
        own_vids: For each run, the index within its block of each variable of `block`, shape (n,); -1 if it has none.
    """

    block: VariableBlock
    own_blocks: tuple[VariableBlock, ...]
    own_vids: tuple[np.ndarray, ...]

    def held_out_of_all(self, hidden_by_run: Sequence[np.ndarray]) -> np.ndarray:
        """Return a mask of the variables that are held out of all runs, shape (n,).

        Args:
            hidden_by_run: For each run, a mask of its held-out variables.
        """
        masks = [
            (vids >= 0) & hidden[block.start + np.maximum(vids, 0)]
            for block, vids, hidden in zip(self.own_blocks, self.own_vids, hidden_by_run, strict=True)
        ]
        return np.asarray(np.all(masks, axis=0))


def _match_variables(block: VariableBlock, runs: Sequence[GroundedRun]) -> _SharedVariables | None:
    """Return the variables of a block of the first run in all runs; None if a run does not predict the attribute.

    An attribute that is a number in some of the runs only is not predicted by all.
    """

    def find(run: GroundedRun) -> VariableBlock | None:
        blocks = predicted_blocks(run.grounding)
        return next((b for b in blocks if b.name == block.name and b.is_numeric == block.is_numeric), None)

    own_blocks = [find(run) for run in runs]
    found = tuple(own for own in own_blocks if own is not None)
    if len(found) < len(runs):
        return None
    texts = runs[0].grounding.argument_texts(block)
    own_vids = [_find_vids(texts, run.grounding.argument_texts(own)) for run, own in zip(runs, found, strict=True)]
    values = tuple(dict.fromkeys(value for own in found for value in own.values))
    return _SharedVariables(replace(block, values=values), found, tuple(own_vids))


def _find_vids(wanted: Sequence[np.ndarray], known: Sequence[np.ndarray]) -> np.ndarray:
    """Return the index among the known names of each wanted name, or -1; a name is one text of each column."""
    if all(np.array_equal(one, other) for one, other in zip(wanted, known, strict=True)):
        return np.arange(len(known[0]))
    places = {name: k for k, name in enumerate(zip(*known, strict=True))}
    return np.array([places.get(name, -1) for name in zip(*wanted, strict=True)], dtype=np.int64)


def _translate_mask(shared: Sequence[_SharedVariables], run: int, grounding: Grounding, mask: np.ndarray) -> np.ndarray:
    """Return the mask of the variables of a run that a mask of the first run's variables selects."""
    own_mask = np.zeros(grounding.graph.n_variables, dtype=bool)
    for each in shared:
        vids = each.own_vids[run][mask[each.block.start : each.block.start + each.block.count]]
        own_mask[each.own_blocks[run].start + vids[vids >= 0]] = True
    return own_mask


def _unify_states(
    shared: Sequence[_SharedVariables], run: int, fold: Fold, prediction: FoldPrediction
) -> FoldPrediction:
    """Return the prediction of a run for the variables and with the values of the shared blocks.

    Args:
        fold: The fold of the first run.
    """
    variables, tables, truths = [np.empty(0, dtype=np.int64)], [], [np.empty(0, dtype=np.int64)]
    numbers: list[tuple[np.ndarray, ScoredNumbers]] = []
    for each in shared:
        test = np.flatnonzero(fold.test[each.block.start : each.block.start + each.block.count])
        own_block, vids = each.own_blocks[run], each.own_vids[run][test]
        labels = prediction.block_labels(own_block)
        rows = np.argsort(np.argsort(vids))  # predictions are in the order of the run's own variables
        if isinstance(labels, ScoredNumbers):
            scored = ScoredNumbers(labels.means[rows], labels.deviations[rows], labels.truth[rows])
            numbers.append((each.block.start + test, scored))
            continue
        codes = {value: code for code, value in enumerate(each.block.values)}
        states = np.array([codes[value] for value in own_block.values], dtype=np.int64)
        table = np.zeros((len(test), len(each.block.values)))
        table[:, states] = labels.probabilities[rows]
        variables.append(each.block.start + test)
        tables.append(table)
        truths.append(states[labels.truth[rows]])
    sizes = np.concatenate([np.empty(0, dtype=np.int64), *(np.full(len(t), t.shape[1]) for t in tables)])
    return replace(
        prediction,
        variables=np.concatenate(variables),
        state_start=offsets(sizes),
        probabilities=np.concatenate([np.empty(0), *(table.ravel() for table in tables)]),
        truth=np.concatenate(truths),
        numbers=_unify_numbers(numbers),
    )


def _unify_numbers(numbers: Sequence[tuple[np.ndarray, ScoredNumbers]]) -> NumberPredictions | None:
    """Return the predictions of the numbers of all shared blocks; None without numbers.

    Args:
        numbers: The variables of the first run, and their predictions, of each block.
    """
    if not numbers:
        return None
    whole = ScoredNumbers.concatenate([scored for _, scored in numbers])
    variables = np.concatenate([own for own, _ in numbers])
    return NumberPredictions(NumberMarginals(variables, whole.means, whole.deviations), whole.truth)
