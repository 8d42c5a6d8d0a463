"""Updates of a trained run: the same weights and predictions as a new run on changed tables, in less time.

An update compares the rows of the tables with digests in the run folder. If the model and the backend permit it, only the
connected components with changed rows are grounded and inferred, and the weights are kept unless the labels or the factors over
labelled variables changed. Otherwise everything is grounded and inferred again, and learning starts at the weights of the run.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from relcrf.backends import run_folder
from relcrf.backends.automatic_sharding import infer_with_sharding
from relcrf.backends.learned_model import LearnedModel
from relcrf.backends.problems import query_problem
from relcrf.backends.registry import make_backend
from relcrf.data.binding import bind
from relcrf.data.dataset import Dataset
from relcrf.data.frame import Frame
from relcrf.data.given_data import GivenData, to_dataset
from relcrf.data.split_plan import DEFAULT_FOLDS
from relcrf.errors import DataError, Diagnostic, UsageError, listing
from relcrf.execution.blas_threads import SingleThreadedBlas
from relcrf.grounding.block_cache import BlockCache
from relcrf.grounding.grounding import Grounding
from relcrf.inference.result import Verdict, worst_verdict
from relcrf.prediction import Prediction
from relcrf.progress_reporting import ProgressMonitor, progress_monitor
from relcrf.training import Training, TrainingRequest, ground_with_engine
from relcrf.updating.entities import Entities
from relcrf.updating.entity_rows import EntityChanges, EntityRows
from relcrf.updating.locality import global_model_reason, global_training_reason, is_local_inference
from relcrf.updating.numbered_entities import NumberedEntities, equal_training
from relcrf.updating.prediction_tables import prediction_tables
from relcrf.updating.state import (
    ComponentState,
    PredictedAttribute,
    UpdateInputs,
    UpdateState,
    duckdb_version,
    read_state,
)
from relcrf.updating.training_digests import (
    TrainingDigests,
    has_ordinary_values,
    merge_ranges,
    training_digests,
)
from relcrf.updating.warm_start import WarmStart, warm_start_points

MAX_SELECTED_FRACTION = 0.5
"""Maximum fraction of the entities that are grounded separately; for more, grounding all of them takes no longer, and
inference of all components needs no comparison with the run's."""


@dataclass(frozen=True)
class UpdateReport:
    """A report on the changes that an update found, and on its work.

    Args:
        rows: Number of rows of each table before and after the update; None before if the run does not contain it.
        entities: Numbers of `added`, `removed`, `changed` and `grounded` entities, and of all (`total`); empty if the rows were
            not compared.
        weights: `kept`, `warm start`, or `learned` from the usual start.
        reason: Why the weights were learned, or why everything was grounded; empty if neither was necessary.
        weight_change: Largest change of a weight that the run and the update have in common; None if the values of a predicted
            attribute changed.
        inferred, kept: Numbers of predictions that were computed and that were copied from the run.
        verdict: Convergence status of the inferred predictions.
        joint_verdict: Convergence status of the search for the column `joint` of these predictions.
        is_converged: Whether inference was exact or converged.
        seconds: Duration of each step.
    """

    rows: Mapping[str, tuple[int | None, int]]
    entities: Mapping[str, int]
    weights: str
    reason: str
    weight_change: float | None
    inferred: int
    kept: int
    verdict: str
    joint_verdict: str
    is_converged: bool
    seconds: Mapping[str, float]


@dataclass(frozen=True, repr=False)
class Update:
    """An updated run: the learned model, the predictions of all missing values, and a report."""

    learned: LearnedModel
    tables: Mapping[str, Frame]
    report: UpdateReport
    notes: tuple[str, ...]
    state: UpdateState

    def __repr__(self) -> str:
        report = self.report
        return f"Update(weights {report.weights}; {report.inferred:,} predictions inferred, {report.kept:,} kept)"

    def save(self, folder: str | Path, *, force: bool = False, sync: bool = True) -> None:
        """Write the run folder; an existing run is replaced when all files are written.

        Raises:
            UsageError: The folder exists and `force` is not set, or contains other files; see `run_folder.require_writable`.
        """
        folder = Path(folder)
        with run_folder.claim_folder(folder, resume=False, force=force, sync=sync) as partial:
            self.state.write(partial)
            run_folder.save(self.learned, folder, self.report.seconds, sync=sync)


@SingleThreadedBlas()
def update(
    run: str | Path,
    data: GivenData,
    *,
    budget: int | None = None,
    cache: BlockCache | None = None,
    progress: ProgressMonitor | None = None,
) -> Update:
    """Update a run to changed tables; the run folder itself does not change before `Update.save`.

    The result is that of training with the backend and settings of the run (if `auto` chose them, of its choice) and of
    prediction, within the tolerances of learning and inference.

    Args:
        run: Run folder that `relcrf train` or an update wrote.
        data: All tables, with the rows that changed and those that did not.
        budget: Maximum number of bindings per template; None for that of the run.
        cache: Cache of ground blocks, which is used if everything is grounded.

    Raises:
        UsageError: The run has no provenance (E430).
        DataError: The run folder is damaged, or the tables do not match the model.
    """
    learned, folder = run_folder.load(Path(run)), Path(run)
    state, provenance = read_state(folder), run_folder.load_provenance(folder)
    if state is None and provenance is None:
        message = f"the run folder '{run}' has no provenance"
        hint = "use a run written by 'relcrf train'; runs saved from Python do not store how they were trained"
        raise UsageError(Diagnostic("E430", message, hint=hint))
    if state is None:
        assert provenance is not None
        state = UpdateState(provenance.protocol, "the run does not contain the digests of its rows", None)
    fingerprint = None if provenance is None else provenance.fingerprint
    dataset = to_dataset(data, learned.spec, learned.mapping, learned.formats)
    if budget is not None:
        state = replace(state, protocol=replace(state.protocol, budget=budget))
    with progress_monitor(False) if progress is None else nullcontext(progress) as monitor:
        return _UpdateRun(learned, state, fingerprint, dataset, cache, monitor).run()


class _UpdateRun:
    """The state of one update.

    Args:
        state: State of the run.
        fingerprint: Fingerprint of the training data of the run; None if an update wrote the run.
    """

    def __init__(
        self,
        learned: LearnedModel,
        state: UpdateState,
        fingerprint: str | None,
        dataset: Dataset,
        cache: BlockCache | None,
        progress: ProgressMonitor,
    ) -> None:
        self.learned, self.fingerprint = learned, fingerprint
        self.dataset, self.cache, self.progress = dataset, cache, progress
        self.known = state.components
        is_calibrated = "calibration" in learned.summary or learned.calibration_labels
        calibrated = DEFAULT_FOLDS if is_calibrated else 0
        # The result depends neither on the workers nor on the memory.
        self.protocol = replace(
            state.protocol, calibrate=state.protocol.calibrate or calibrated, workers=0, spark_master=None
        )
        self.system = make_backend(learned.backend, **learned.settings)
        self.spec = learned.spec
        self.reason = global_model_reason(self.spec) or global_training_reason(self.system, self.protocol)
        self.unknown_reason = state.reason
        self.notes: list[str] = []
        self.seconds: dict[str, float] = {}
        self.rows: EntityRows | None = None
        self.changes: EntityChanges | None = None

    def run(self) -> Update:
        """Return the updated run."""
        with self._timed("compare", "comparing rows"):
            if not self.reason:
                is_comparable = self.known is not None and self.known.inputs.duckdb == duckdb_version()
                known = self.known.rows if self.known is not None and is_comparable else None
                self.rows = EntityRows(self.spec, self.dataset, known)
                if reason := self.rows.global_reason():
                    self.rows, self.reason = None, reason
            self._compare()
        return self._update_components() or self._update_all()

    def _compare(self) -> None:
        """Compare the rows with those of the run; set the reason if everything has to be grounded."""
        if self.rows is None:
            return
        known = self.known
        if known is None:
            self.reason = self.unknown_reason
            return
        if known.inputs.duckdb != duckdb_version():
            self.reason = f"the digests of the run are those of DuckDB {known.inputs.duckdb}"
            return
        shared = self.rows.shared_inputs()
        names = sorted({*shared, *known.inputs.shared})
        if changed := [name for name in names if shared.get(name) != known.inputs.shared.get(name)]:
            self.reason = f"the columns of {listing(changed)} changed, or rows that mention no entity"
            return
        if not self.learned.converged:
            self.reason = "learning did not converge"
            return
        self.changes = self.rows.compare()
        total = self.changes.n_kept + self.changes.n_selected
        if self.changes.n_selected > MAX_SELECTED_FRACTION * total:
            self.reason = f"rows connect {self.changes.n_selected:,} of {total:,} entities to a change"
        elif not is_local_inference(self.learned.configure_backend(), known.inputs.verdict):
            self.reason = f"inference of all components together was not exact ({known.inputs.verdict.status})"

    def _update_components(self) -> Update | None:
        """Update the changed components only; return None if everything has to be grounded."""
        known, rows, changes = self.known, self.rows, self.changes
        if self.reason or known is None or rows is None or changes is None:
            return None
        numbers = {each.name: np.empty((0, len(each.values) + 1)) for each in known.predicted}
        part = NumberedEntities(Entities.empty())
        digests = TrainingDigests({}, {})
        verdicts = (known.inputs.verdict,) * 2
        if changes.n_selected:
            subset = rows.select_rows(changes)
            with self._timed("ground", "grounding changed components"):
                try:
                    grounding = ground_with_engine(
                        bind(self.spec, subset),
                        "duckdb",
                        None,
                        budget=self.protocol.budget,
                        progress=self.progress.report_grounding,
                    )
                except DataError:  # the messages of the whole tables name the rows
                    self.reason = "a changed row is invalid"
                    return None
                self.notes = grounding.bound.notes
                part = NumberedEntities.from_rows(self.spec, EntityRows(self.spec, subset), grounding)
                digests = training_digests(grounding)
        training = part.entity_numbers(digests.by_entity)
        ranges = merge_ranges(known.inputs.ranges, digests.ranges)
        if not equal_training(known.entities, known.training, ~changes.kept, part.entities, training):
            self.reason = "labels changed, or factors over labelled variables"
            return None
        if not has_ordinary_values(ranges):
            self.reason = "a feature has extreme values, whose limit depends on all rows"
            return None
        if changes.n_selected:
            with self._timed("infer", "inferring changed components"):
                prediction = self._infer(self.learned, grounding)
                verdicts = prediction.verdict, prediction.joint_verdict
                numbers = part.predictions(prediction)
            if not is_local_inference(self.learned.configure_backend(), worst_verdict(verdicts)):
                self.reason = f"inference of the changed components was not exact ({worst_verdict(verdicts).status})"
                return None
        kept = changes.kept
        component = np.concatenate([known.component[kept], int(known.component.max(initial=-1)) + 1 + part.component])
        inputs = replace(
            known.inputs,
            row_counts=rows.row_counts(),
            ranges=ranges,
            verdict=worst_verdict(verdicts) if known.inputs.verdict.status == "exact" else known.inputs.verdict,
        )
        entities = known.entities.take(kept).append(part.entities)
        components = ComponentState(
            inputs,
            entities,
            np.unique(component, return_inverse=True)[1].astype(np.int32),
            np.concatenate([known.training[kept], training]),
            tuple(
                replace(each, numbers=np.concatenate([each.numbers[kept], numbers[each.name]]))
                for each in known.predicted
            ),
            rows.segments(entities, kept),
        )
        n_kept = sum(int(np.isfinite(each.numbers[kept, 0]).sum()) for each in known.predicted)
        return self._finish(self.learned, components, "kept", verdicts=verdicts, n_kept=n_kept)

    def _update_all(self) -> Update:
        """Ground and infer everything; learn unless the labels and the factors over labelled variables are the same."""
        request = TrainingRequest(self.spec, self.learned.backend, self.learned.settings, self.dataset, self.protocol)
        with self._timed("ground", "reading tables"):
            training_run = request.ground(self.progress.report_grounding, self.cache)
            grounding = training_run.grounding
            self.notes = grounding.bound.notes
            part, digests = None, TrainingDigests({}, {})
            if self.rows is not None:
                part = NumberedEntities.from_rows(self.spec, self.rows, grounding)
                digests = training_digests(grounding)
                training = part.entity_numbers(digests.by_entity)
        known = self.known
        is_same = self.fingerprint is not None and self._identity(training_run) == self.fingerprint
        if not is_same and part is not None and known is not None:
            everything = np.ones(len(known.entities), dtype=bool)
            is_same = (
                self.learned.converged
                and known.inputs.duckdb == duckdb_version()
                and has_ordinary_values(merge_ranges(known.inputs.ranges, digests.ranges))
                and equal_training(known.entities, known.training, everything, part.entities, training)
            )
        learned, weights = self.learned, "kept"
        if not is_same:
            with self._timed("learn", "learning"):
                points = warm_start_points(self.learned, self.system, training_run.ground_graph)
                weights = "warm start" if points else "learned"
                learned = training_run.run(WarmStart(self.progress, points))
        with self._timed("infer", "inferring"):
            prediction = self._infer(learned, grounding)
            verdicts = prediction.verdict, prediction.joint_verdict
            if part is None or self.rows is None:
                tables = {name: prediction.table(name) for name in prediction.attributes}
                return self._finish(learned, None, weights, verdicts=verdicts, tables=tables)
            numbers = part.predictions(prediction)
        blocks = [block for block in grounding.blocks if block.name in numbers]
        inputs = UpdateInputs(
            duckdb_version(), self.rows.shared_inputs(), self.rows.row_counts(), digests.ranges, worst_verdict(verdicts)
        )
        predicted = tuple(PredictedAttribute(b.name, tuple(b.values), numbers[b.name]) for b in blocks)
        components = ComponentState(
            inputs, part.entities, part.component, training, predicted, self.rows.segments(part.entities)
        )
        return self._finish(learned, components, weights, verdicts=verdicts)

    def _identity(self, training_run: Training) -> str:
        """Return the fingerprint that the training run would have with the backend of the original request."""
        request = self.learned.original_request
        system = make_backend(request.backend, **request.settings)
        return replace(training_run, backend=request.backend, system=system).identity

    def _infer(self, learned: LearnedModel, grounding: Grounding) -> Prediction:
        grounding, vectors, problem = query_problem(learned, grounding)
        store = self.dataset.store
        observe = self.progress.report_inference
        inferred = infer_with_sharding(store, problem, learned.configure_backend(), vectors, None, observe)
        for verdict in (inferred.verdict, inferred.joint_states.verdict):
            verdict.raise_if_interrupted()  # an update writes complete predictions, or leaves the run unchanged
        return Prediction(grounding, inferred, learned.count_unseen_keys(grounding))

    def _finish(
        self,
        learned: LearnedModel,
        components: ComponentState | None,
        weights: str,
        *,
        verdicts: tuple[Verdict, Verdict],
        n_kept: int = 0,
        tables: Mapping[str, Frame] | None = None,
    ) -> Update:
        """Return the update with its report.

        Args:
            verdicts: The verdicts on the marginals and on the joint states.
        """
        if components is not None and self.rows is not None:
            tables = prediction_tables(self.spec, components, self.rows.key_names)
        assert tables is not None
        n_predictions = sum(len(table) for table in tables.values())
        before = {} if self.known is None else self.known.inputs.row_counts
        after = {} if components is None else components.inputs.row_counts
        entities = {}
        if self.changes is not None and components is not None:
            changes = self.changes
            entities = {"added": changes.n_added, "removed": changes.n_removed, "changed": changes.n_changed}
            entities |= {"grounded": changes.n_selected, "total": len(components.entities)}
        report = UpdateReport(
            {name: (before.get(name), n_rows) for name, n_rows in after.items()},
            entities,
            weights,
            self.reason,
            learned.largest_weight_change(self.learned),
            n_predictions - n_kept,
            n_kept,
            str(verdicts[0]),
            str(verdicts[1]),
            verdicts[0].is_good,
            self.seconds,
        )
        notes = tuple(dict.fromkeys([*self.dataset.notes, *self.notes]))
        state = UpdateState(self.protocol, "" if components is not None else self.reason, components)
        return Update(learned, tables, report, notes, state)

    @contextmanager
    def _timed(self, step: str, phase: str) -> Iterator[None]:
        """Measure the duration of a step, and display the phase."""
        self.progress.start_phase(phase)
        started = time.perf_counter()
        yield
        self.seconds[step] = self.seconds.get(step, 0.0) + time.perf_counter() - started
