"""The gated MRF: evidence selects the active factors; gates and weights are learned jointly for accuracy and speed.

The gate of a factor is a logistic function of the evidence; a factor with a low gate probability is omitted.

Source: Stoyanov & Eisner, Fast and accurate prediction via evidence-specific MRF structure (2012).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from relcrf.backends.base import AbstractBackend, FitResult, Monitor, Problem
from relcrf.backends.gated_risks import ExampleSplitter, GatedBeliefsSpec, remove_closed_factors
from relcrf.backends.inference_result import InferenceResult
from relcrf.backends.inference_task import InferenceTask
from relcrf.backends.likelihood_backend import learn_unary, maximise_likelihood
from relcrf.backends.self_training import SelfTraining
from relcrf.backends.whole_graph import WholeGraphSpec
from relcrf.gpu.device import DEVICES
from relcrf.graph.feature_scales import weight_scales
from relcrf.graph.reduction import Role
from relcrf.graph.scaling import scale_factors
from relcrf.inference.belief_propagation import BeliefPropagation
from relcrf.inference.result import Observer, Verdict, ignore_progress
from relcrf.kernels.distinct import distinct_rows
from relcrf.learning.early_stopping import EarlyStoppingState, update_early_stopping
from relcrf.learning.feature_units import in_feature_units, unit_scales
from relcrf.learning.lbfgs import AbstractMinimiser, Lbfgs, OptimiserState
from relcrf.learning.owlqn import Owlqn
from relcrf.learning.penalties import Penalties
from relcrf.learning.risk import LOSSES, Risk, RiskSettings
from relcrf.learning.stochastic import AbstractStochasticMethod, Adam, MetaDescent


@dataclass(frozen=True)
class TrainingStage:
    """A stage of training.

    Args:
        steepness: Steepness of the gates' soft thresholds; see `learning/risk.py`.
        uses_evidence: Whether the gates depend on the evidence.
        early_stopping: Whether the risk of held-out variables may end the stage; False for a stage in which gates close
            for the first time.
        refit: Whether the stage omits L1 and group L1, and fixes the weights that are 0 in templates with keys.
        learns_weights, learns_gates: Whether the weights of factors and the weights of gates may change.
        rate_factor: Factor of the learning rate of a stochastic optimiser.
    """

    name: str
    steepness: float
    uses_evidence: bool
    early_stopping: bool
    refit: bool = False
    learns_weights: bool = True
    learns_gates: bool = True
    rate_factor: float = 1.0


STATIC_STAGES = (
    TrainingStage("static", 1.0, False, False),
    TrainingStage("held_out", 1.0, False, True),
    TrainingStage("sharp_static", 2.0, False, True),
)
"""Training stages of gates that do not depend on the evidence."""

TRAINING_STAGES = {
    "staged": (
        STATIC_STAGES[0],
        TrainingStage("evidence", 1.0, True, True),
        TrainingStage("sharp", 2.0, True, True),
    ),
    "joint": (TrainingStage("evidence", 1.0, True, False), TrainingStage("sharp", 2.0, True, True)),
    "alternating": (
        STATIC_STAGES[0],
        TrainingStage("gates", 1.0, True, False, learns_weights=False),
        TrainingStage("weights", 1.0, True, True, learns_gates=False),
        TrainingStage("sharp_gates", 2.0, True, False, learns_weights=False),
        TrainingStage("sharp_weights", 2.0, True, True, learns_gates=False),
    ),
}
"""Training stages for each value of the setting `schedule`.

The first stage of `staged` and `alternating` does not use the evidence, because otherwise the gates of all pairs of
unknown variables soon close, and the remaining factors overfit.
"""

FINAL_STAGE = TrainingStage("final", 2.0, True, True, rate_factor=0.3)
"""The last stage of `staged`; it starts from the better of the gates with evidence and of the static gates.

With the usual learning rate, the first steps of Adam, whose size does not depend on that of the gradient, change all
weights of evidence features so much that the held-out risk of the static gates is not reached again.
"""

OPEN_STAGES = (TrainingStage("open", 1.0, False, True),)
"""Training stages without gates."""

FIRST_WEIGHTS_STAGE = TrainingStage("open_weights", 1.0, False, False, learns_gates=False)
FINAL_WEIGHTS_STAGE = TrainingStage("final_weights", 2.0, True, True, learns_gates=False)
"""The first and the last stage of `optimiser=auto` if messages have a cost."""

REFIT_STAGE = TrainingStage("refit", 2.0, True, True, refit=True)
"""The last stage if L1 or group L1 is used; it learns the nonzero weights again, without these penalties."""

INITIAL_GATE_LOG_ODDS = 2.0
"""Initial log odds of all gates; with 2, a probability of 0.88, the gradient of a gate is still large enough."""

PRETRAINING_BP_ITERATIONS = 50
"""Maximum number of belief propagation iterations per evaluation of the likelihood in pretraining."""

STOCHASTIC_OPTIMISERS: dict[str, type[AbstractStochasticMethod]] = {"adam": Adam, "smd": MetaDescent}
DEFAULT_LEARNING_RATES = {"adam": 0.03, "smd": 0.1}


@dataclass(frozen=True)
class GatedBackend(AbstractBackend):
    """A model with gates on pairwise factors; gates and weights minimise the loss of belief propagation's predictions.

    Training first maximises the likelihood for a few iterations with all gates open. It then minimises the risk (the
    mean loss plus the cost of messages) over weights and gates, with soft gate thresholds that become steeper.
    Penalties are added to the sum of the losses over variables and evidence draws (see `evidence_draws`), not to the
    mean.

    Args:
        loss: Loss of the labelled variables' beliefs: `squared`, `cross-entropy`, or `f`, which is 1 minus the F
            measure.
        message_cost: Cost per query variable of one useful message of a factor over two binary variables, relative to
            the mean loss. Messages of larger tables cost more; see docs/explanation/gated.md.
        gates: `evidence`: gates depend on the evidence; `static`: the factors of one key of a template share one gate,
            which does not depend on the evidence; `none`: all gates are open.
        schedule: How gates that depend on the evidence are learned. `staged`: static gates and weights first, then all
            gates and weights together, unless static gates have a lower risk on held-out data; `alternating`: static
            gates and weights first, then gates and weights in turn; `joint`: all gates and weights together from the
            start.
        bp_iterations: Number of iterations of belief propagation.
        gate_threshold: Gate probability below which a factor is omitted in prediction.
        training_gate_threshold: Gate probability that is the midpoint of the soft threshold in training.
        l2: L2 penalty on the weights of factors.
        l1: L1 penalty on the weights of factors with keys; it requires `optimiser=lbfgs`. A last stage refits the
            nonzero weights without L1.
        group_l1: Group L1 penalty on the weights of factors with keys; each key is a group. A last stage refits the
            nonzero weights without group L1.
        gate_l2: L2 penalty on the gate weights that do not depend on the evidence.
        evidence_l2: L2 penalty on the gate weights of evidence features that all keys of a template share.
        deviation_l2: L2 penalty on each key's deviations from these weights.
        evidence_fraction: Fraction of the labels that training treats as evidence; it should be similar to the fraction
            of known labels in prediction.
        evidence_draws: Number of random choices of the labels that are treated as evidence; training uses all choices.
        unlabelled: Treatment of variables without a label in training. `ignore`: they are absent. `marginal`: they are
            included, without a loss. `self`: confident predictions become labels, and learning is repeated; the loss of
            a target is that of its predicted state, not of the predicted probabilities. `em`: as `self`, but only the
            weights of templates over one variable are learned again, by maximum likelihood, without the other templates.
        threshold: Minimum probability of a prediction that `self` and `em` use as a label.
        fraction: If positive, `self` and `em` use the most probable predictions of each state instead of `threshold`; the
            fraction of the unlabelled variables whose predictions are labels in the last round.
        rounds: Maximum number of repetitions of `self` and `em`.
        pretraining_iterations: Maximum number of iterations of the initial likelihood maximisation.
        optimiser: `lbfgs`; `adam` or `smd` (stochastic meta-descent), with mini-batches of whole components; or `auto`,
            which is `lbfgs` if messages have no cost. Otherwise, `lbfgs` would find worse optima: the weights that all
            gates share change first, so all gates open or close together. `auto` then learns the gates with `adam`, and
            the weights with `lbfgs` before and after. With `group_l1`, `auto` is `adam`.
        batch_size: Number of connected components per mini-batch.
        learning_rate: Learning rate of the first step of a stochastic optimiser; 0 selects the optimiser's default.
        max_iterations: Maximum number of iterations of each stage; for `adam` and `smd`, maximum number of passes.
        tolerance: A stage has converged when the gradient norm is at most this fraction of the initial norm.
        validation_fraction: Fraction of the components (of the variables if there are few components) that is held out
            for early stopping.
        patience: Number of iterations without improvement on the held-out data after which a stage stops.
        seed: Random seed.
        device: `cpu`, or `gpu` to run belief propagation and its adjoint on a CUDA GPU.
    """

    name: ClassVar[str] = "gated"
    learning_arrays: ClassVar[tuple[float, float]] = (9, 10)
    inference_arrays: ClassVar[tuple[float, float]] = (6, 10)
    unused_settings: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "static": ("gates", "schedule", "evidence_l2", "deviation_l2", "gate_threshold", "patience"),
        **{stage.name: ("gates", "schedule", "evidence_l2", "deviation_l2") for stage in STATIC_STAGES[1:]},
    }
    uses_gates: ClassVar[bool] = True
    loss: str = "squared"
    message_cost: float = 0.0
    gates: str = "evidence"
    schedule: str = "staged"
    bp_iterations: int = 3
    gate_threshold: float = 0.3
    training_gate_threshold: float = 0.5
    l2: float = 1.0
    l1: float = 0.0
    group_l1: float = 0.0
    gate_l2: float = 0.001
    evidence_l2: float = 10.0
    deviation_l2: float = 10.0
    evidence_fraction: float = 0.0
    evidence_draws: int = 1
    unlabelled: str = "ignore"
    threshold: float = 0.9
    fraction: float = 0.0
    rounds: int = 3
    pretraining_iterations: int = 5
    optimiser: str = "auto"
    batch_size: int = 200
    learning_rate: float = 0.0
    max_iterations: int = 100
    tolerance: float = 1e-4
    validation_fraction: float = 0.1
    patience: int = 10
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        self._require_one_of("loss", LOSSES)
        self._require_one_of("device", DEVICES)
        self._require_one_of("gates", ("evidence", "static", "none"))
        self._require_one_of("schedule", tuple(TRAINING_STAGES))
        self._require_one_of("unlabelled", ("ignore", "self", "em", "marginal"))
        self._require_one_of("optimiser", ("auto", "lbfgs", *STOCHASTIC_OPTIMISERS))
        self._require_positive("bp_iterations", "batch_size", "evidence_draws", "training_gate_threshold", "rounds")
        self._require_below_1("gate_threshold", "training_gate_threshold", "evidence_fraction", "validation_fraction")
        self._require_below_1("threshold", "fraction")
        if self.l1 and self.optimiser in STOCHASTIC_OPTIMISERS:
            self._reject_setting(
                "l1", f"optimiser '{self.optimiser}' does not support it; use group_l1 or optimiser=lbfgs"
            )

    @property
    def unshardable_reason(self) -> str:
        return "gate features are not split into shards"

    def fit(self, problem: Problem, monitor: Monitor, warm_start: Mapping[str, np.ndarray] | None = None) -> FitResult:
        """Learn from the labels of the free variables and, depending on `unlabelled`, from absent variables.

        Args:
            warm_start: Vectors learned for the same problem, for example with another message cost; pretraining is then
                omitted. A gate weight that all keys share is reduced to its usual initial value if it is larger.
        """
        self._require_unsharded(problem)
        learned = self.fit_labels(problem, monitor, warm_start)
        if not self.uses_predicted_labels:
            return learned
        learn = self._learn_again if self.unlabelled == "self" else self._learn_unary
        rounds = SelfTraining(self, learn, self.threshold, self.fraction, self.rounds, self.unlabelled == "em")
        return rounds.run(problem, learned, monitor)

    @property
    def uses_predicted_labels(self) -> bool:
        return self.unlabelled in ("self", "em")

    def _learn_again(self, problem: Problem, monitor: Monitor, factor: float) -> FitResult:
        penalties = ("l2", "l1", "group_l1", "gate_l2", "evidence_l2", "deviation_l2")
        scaled: dict[str, Any] = {name: factor * getattr(self, name) for name in penalties}
        return replace(self, **scaled).fit_labels(problem, monitor)

    def _learn_unary(self, problem: Problem, monitor: Monitor, factor: float) -> FitResult:
        optimiser = Lbfgs(self.tolerance, max_iterations=self.max_iterations)
        return learn_unary(problem, self.name, optimiser, factor * self.l2, monitor)

    def fit_labels(
        self, problem: Problem, monitor: Monitor, warm_start: Mapping[str, np.ndarray] | None = None
    ) -> FitResult:
        """Learn from the labels of the free variables; for the arguments see `fit`."""
        # The initial weights precede `with_unlabelled`: only states of latent attributes need random weights to differ.
        start = problem.initial_weights(self.seed)
        if self.unlabelled == "marginal":
            problem = problem.with_unlabelled()
        rng = np.random.default_rng(self.seed)
        uses_batches = any(self._optimiser(stage) in STOCHASTIC_OPTIMISERS for stage in self._stages)
        batch = self.batch_size if uses_batches else 0
        examples = ExampleSplitter(self._risk_settings, self.name, self.validation_fraction, batch)
        held_out, by_component = examples.select_held_out(problem, rng)
        # Held-out components are in no batch, so their labels may also be evidence; held-out variables may not.
        eligible = np.ones_like(held_out) if by_component else ~held_out
        problems = [
            self._draw_evidence(problem, eligible, rng)
            for _ in range(self.evidence_draws if self.evidence_fraction else 1)
        ]
        risks, held_out_risk = examples.split_risks(problems, held_out, by_component, rng)
        stages: list[tuple[str, OptimiserState]] = []
        if warm_start is None:
            pretrained = self._pretrain(problem, held_out, start, monitor)
            point = np.concatenate((pretrained.point, self._initial_gates(problem)))
            stages += [("likelihood", pretrained)] if self.pretraining_iterations else []
        else:
            # The gradient of an open, saturated gate is almost 0, so a higher message cost would not close the gate.
            initial_gates = self._initial_gates(problem)
            gates = np.where(initial_gates > 0.0, np.minimum(warm_start["gates"], initial_gates), warm_start["gates"])
            point = np.concatenate((warm_start["weights"], gates))
        n_scored = sum(risk.n_scored for risk in risks)
        feature_scales = weight_scales(problem.graph)
        adam_scales = feature_scales
        if self._has_weight_stages:
            adam_scales = feature_scales * self._rate_divisors(problem, feature_scales)

        def run(schedule: Sequence[TrainingStage], point: np.ndarray) -> np.ndarray:
            for stage in schedule:
                penalties = self._penalties(problem, n_scored, stage, point)
                observed_risk = held_out_risk if stage.early_stopping else None
                scales = adam_scales if self._optimiser(stage) == "adam" else feature_scales
                state = self._run_stage(stage, risks, observed_risk, penalties, scales, point, monitor)
                stages.append((stage.name, state))
                point = penalties.prune_groups(state.point)
            return point

        if self._has_weight_stages:
            point = run((FIRST_WEIGHTS_STAGE,), point)
        schedule = self._stages
        if self.l1 or self.group_l1:
            schedule = (*(replace(stage, early_stopping=False) for stage in schedule), REFIT_STAGE)
        point = run(schedule, point)
        with_evidence = stages[-1][1]
        if schedule == TRAINING_STAGES["staged"] and isinstance(with_evidence, EarlyStoppingState):
            static_point = run(STATIC_STAGES[1:], dict(stages)[STATIC_STAGES[0].name].point)
            without_evidence = stages[-1][1]
            assert isinstance(without_evidence, EarlyStoppingState)
            point = run((FINAL_STAGE,), static_point if without_evidence.best < with_evidence.best else point)
        if self._has_weight_stages:
            point = run((FINAL_WEIGHTS_STAGE,), point)
        weights, gates = point[: problem.graph.layout.size], point[problem.graph.layout.size :]
        *earlier, last = stages
        return FitResult(
            {"weights": weights, "gates": gates},
            (*((name, _as_scheduled(state)) for name, state in earlier), last),
            self._summary(risks, held_out_risk, point),
        )

    @property
    def _stages(self) -> tuple[TrainingStage, ...]:
        match self.gates:
            case "evidence":
                return TRAINING_STAGES[self.schedule]
            case "static":
                return STATIC_STAGES
        return OPEN_STAGES

    @property
    def _risk_settings(self) -> RiskSettings:
        return RiskSettings(
            self.loss,
            self.message_cost,
            self.bp_iterations,
            self.training_gate_threshold,
            has_gates=self.gates != "none",
            device=self.device,
        )

    def _draw_evidence(self, problem: Problem, eligible: np.ndarray, rng: np.random.Generator) -> Problem:
        """Return the problem with randomly chosen labels as evidence.

        Args:
            eligible: Mask of the variables that may become evidence, shape (n_variables,), bool.
        """
        labelled = (problem.roles == Role.FREE) & (problem.states >= 0)
        chosen = labelled & eligible & (rng.random(len(labelled)) < self.evidence_fraction)
        return replace(problem, roles=np.where(chosen, Role.CLAMPED, problem.roles).astype(np.int8))

    def _pretrain(self, problem: Problem, held_out: np.ndarray, start: np.ndarray, monitor: Monitor) -> OptimiserState:
        """Run some iterations of maximum likelihood from `start` with all gates open and without held-out variables."""
        problem.reduced_graph(self.name)
        problem = replace(
            problem, roles=np.where(held_out & (problem.roles == Role.FREE), Role.ABSENT, problem.roles).astype(np.int8)
        )
        if not self.pretraining_iterations:
            return OptimiserState(start, 0.0, np.zeros(len(start)), 0.0, (), (), 0.0)
        likelihood = problem.total_likelihood(
            WholeGraphSpec(self.name, "bp", (("max_iterations", PRETRAINING_BP_ITERATIONS), ("device", self.device)))
        )
        optimiser = Lbfgs(self.tolerance, max_iterations=self.pretraining_iterations)
        state = maximise_likelihood("likelihood", likelihood, optimiser, self.l2, lambda: start, monitor)
        return replace(state, status="stopped early") if state.status == "not converged" else state

    def _initial_gates(self, problem: Problem) -> np.ndarray:
        """Return the initial gate weights, with which all gates have the same probability."""
        gates = problem.gates
        shared = ~(gates.feature_weight_mask(problem.graph) | gates.key_weight_mask(problem.graph))
        return np.where(shared, INITIAL_GATE_LOG_ODDS, 0.0)

    def _penalties(self, problem: Problem, n_scored: int, stage: TrainingStage, point: np.ndarray) -> Penalties:
        graph, gates = problem.graph, problem.gates
        features = gates.feature_weight_mask(graph)
        feature_l2 = np.where(gates.key_weight_mask(graph), self.deviation_l2, self.evidence_l2)
        uses_evidence = stage.uses_evidence and self.gates == "evidence"
        learned = np.zeros_like(features) if self.gates == "none" else ~features | uses_evidence
        groups = []
        for block in {graph.groups[number].block for number in gates.groups}:
            n_keys = next(group.features.n_blocks for group in graph.groups if group.block == block)
            offsets = np.arange(graph.layout.starts[block], graph.layout.starts[block + 1])
            if n_keys:
                groups.append(offsets.reshape(n_keys, -1))
        learnable = np.concatenate((graph.layout.learnable_mask() & stage.learns_weights, learned & stage.learns_gates))
        if stage.refit:
            for rows in groups:
                learnable[rows] &= point[rows] != 0.0
        return Penalties(
            np.concatenate((graph.layout.l2(self.l2), np.where(features, feature_l2, self.gate_l2))),
            learnable,
            tuple(groups),
            0.0 if stage.refit else self.l1,
            0.0 if stage.refit else self.group_l1,
            1.0 / max(n_scored, 1),
            np.concatenate((graph.layout.initial(), np.zeros(len(features)))),
        )

    def _run_stage(
        self,
        stage: TrainingStage,
        risks: list[Risk],
        held_out_risk: Risk | None,
        penalties: Penalties,
        feature_scales: np.ndarray,
        point: np.ndarray,
        monitor: Monitor,
    ) -> OptimiserState:
        """Minimise the risk until convergence, or until the held-out risk has not improved in `patience` iterations.

        Args:
            feature_scales: The scale of each weight, without those of the gates; for `adam`, see `_rate_divisors`.
        """
        n_scored, all_batches = sum(risk.n_scored for risk in risks), np.arange(len(risks))

        def evaluate(weights: np.ndarray, batch: np.ndarray = all_batches) -> tuple[float, np.ndarray]:
            value, gradient = penalties(weights)
            for risk in (risks[number] for number in batch):
                loss, slope = risk(weights, stage.steepness)
                fraction = risk.n_scored * len(risks) / (n_scored * len(batch))
                value += fraction * loss
                gradient += fraction * slope
            return value, np.where(penalties.learned, gradient, 0.0)

        def with_held_out_risk(state: OptimiserState) -> OptimiserState:
            return state if held_out_risk is None else self._check_early_stopping(state, held_out_risk)

        def observe(state: OptimiserState) -> OptimiserState:
            state = with_held_out_risk(state)
            monitor.step(stage.name, state, self.max_iterations)
            return state

        optimiser = self._optimiser(stage)
        gate_scales = np.ones(len(point) - len(feature_scales))
        scale = unit_scales(np.concatenate((feature_scales, gate_scales)), penalties.scale * penalties.l2)
        method = in_feature_units(self._minimiser(optimiser, len(risks), penalties, stage.rate_factor, scale), scale)
        state = monitor.restore(stage.name, OptimiserState if held_out_risk is None else EarlyStoppingState)
        state = method.minimise(evaluate, state or with_held_out_risk(method.start(evaluate, point)), observe)
        return _as_scheduled(state) if optimiser in STOCHASTIC_OPTIMISERS else state

    @property
    def _has_weight_stages(self) -> bool:
        """Return True if `auto` learns the weights alone before and after the stages of the gates."""
        closes_gates = self.message_cost > 0.0 and self.gates != "none"
        return self.optimiser == "auto" and closes_gates and not (self.l1 or self.group_l1)

    def _optimiser(self, stage: TrainingStage) -> str:
        if self.optimiser != "auto":
            return self.optimiser
        uses_adam = stage.learns_gates if self._has_weight_stages else self.group_l1 and not self.l1
        return "adam" if uses_adam else "lbfgs"

    def _rate_divisors(self, problem: Problem, feature_scales: np.ndarray) -> np.ndarray:
        """Return powers of 2 by which Adam's steps are divided, so that they grow with the root of a weight's information.

        Adam changes a weight that few labels determine as much as any other. The weights of words would then overfit so
        much that the last stage, whose loss is nearly constant there, could not correct them.

        Returns:
            Shape (n_weights,); 1 for the weight with the most information, and for weights without any.
        """
        likelihood = problem.total_likelihood(WholeGraphSpec(self.name, "bp"))
        information = likelihood.curvature() / feature_scales**2
        known = information > 0.0
        exponents = np.zeros(len(information), dtype=int)
        exponents[known] = np.rint(0.5 * np.log2(information.max(initial=0.0) / information[known]))
        return np.ldexp(1.0, exponents)

    def _minimiser(
        self, optimiser: str, n_batches: int, penalties: Penalties, rate_factor: float, scale: np.ndarray
    ) -> AbstractMinimiser[Any]:
        settings: dict[str, Any] = {"tolerance": self.tolerance, "max_iterations": self.max_iterations}
        if optimiser in STOCHASTIC_OPTIMISERS:
            rate = rate_factor * (self.learning_rate or DEFAULT_LEARNING_RATES[optimiser])
            return STOCHASTIC_OPTIMISERS[optimiser](n_batches, 1, rate, seed=self.seed, **settings)
        return Owlqn(l1=penalties.l1_strengths / scale, **settings) if penalties.l1 else Lbfgs(**settings)

    def _check_early_stopping(self, state: OptimiserState, held_out_risk: Risk) -> OptimiserState:
        """Return the state with the held-out risk for hard gates; the final state of a stage has the best point."""
        result = held_out_risk.infer_with_hard_gates(state.point, self.gate_threshold, skip_closed=False)
        loss = held_out_risk.evaluate(result)
        cost = self.message_cost * result.cost / max(held_out_risk.n_queries, 1)
        stopping = state if isinstance(state, EarlyStoppingState) else EarlyStoppingState.from_state(state)
        return update_early_stopping(stopping, loss + cost, self.patience)

    def _summary(
        self, risks: list[Risk], held_out_risk: Risk | None, point: np.ndarray
    ) -> dict[str, float | int | str]:
        results = [risk.infer_with_hard_gates(point, self.gate_threshold) for risk in risks]
        n_scored, n_queries = sum(risk.n_scored for risk in risks), sum(risk.n_queries for risk in risks)
        losses = [risk.evaluate(result) * risk.n_scored for risk, result in zip(risks, results, strict=True)]
        summary: dict[str, float | int | str] = {
            "scored": n_scored,
            "gated_factors": sum(risk.graph.n_factors for risk in risks),
            "open_factors": sum(int(result.open_factors.sum()) for result in results),
            "messages_per_query": sum(result.n_messages for result in results) / max(n_queries, 1),
            "cost_per_query": sum(result.cost for result in results) / max(n_queries, 1),
            "loss": sum(losses) / max(n_scored, 1),
        }
        if held_out_risk is not None:
            result = held_out_risk.infer_with_hard_gates(point, self.gate_threshold)
            summary["held_out_loss"] = held_out_risk.evaluate(result)
            summary["held_out_messages_per_query"] = result.n_messages / max(held_out_risk.n_queries, 1)
        return summary

    def joint_likelihood(self, problem: Problem, vectors: dict[str, np.ndarray]) -> GatedBeliefsSpec:
        return GatedBeliefsSpec(
            self.name, self._risk_settings, self.gate_threshold, problem.share_vector(vectors["gates"])
        )

    def inference_tasks(self, problem: Problem, vectors: dict[str, np.ndarray]) -> tuple[InferenceTask, ...]:
        risk = self.joint_likelihood(problem, vectors).risk(problem)
        exponents = risk.factor_exponents(np.concatenate((vectors["weights"], vectors["gates"])), self.gate_threshold)
        scaled = replace(problem, graph=scale_factors(problem.graph, exponents))
        method = partial(BeliefPropagation, max_iterations=self.bp_iterations, tolerance=0.0, device=self.device)
        return (InferenceTask(scaled.reduced_graph(self.name), vectors["weights"], method),)

    def infer(
        self, problem: Problem, vectors: dict[str, np.ndarray], observe: Observer = ignore_progress
    ) -> InferenceResult:
        if self.gates != "none":
            problem = remove_closed_factors(problem, vectors["gates"], self.gate_threshold)
        risk = self.joint_likelihood(problem, vectors).risk(problem)
        propagated = risk.infer_with_hard_gates(
            np.concatenate((vectors["weights"], vectors["gates"])), self.gate_threshold
        )
        graph, is_used = risk.graph, propagated.messages[risk.graph.n_folded :] > 0
        return InferenceResult(
            variables=graph.ungated.variables,
            state_start=graph.ungated.state_start,
            marginals=propagated.beliefs,
            edges=graph.ungated.variables[distinct_rows(graph.pairs.edges[is_used])],
            log_partition=float("nan"),
            verdict=Verdict("converged", self.bp_iterations),
            n_messages=propagated.n_messages,
        )


def _as_scheduled(state: OptimiserState) -> OptimiserState:
    """Return the state with another status if its stage, which is not the last one or has a fixed length, is complete."""
    return replace(state, status="schedule ended") if state.status == "not converged" else state
