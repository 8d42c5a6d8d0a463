"""The gated MRF: the evidence chooses which factors take part; gates and weights are learned together for loss and speed.

Source: Stoyanov & Eisner, Fast and accurate prediction via evidence-specific MRF structure (2012).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from relcrf.backends.answering import Answering
from relcrf.backends.base import AbstractBackend, Inferred, Learned, Monitor, Problem, maximise_likelihood
from relcrf.backends.risks import Examples, GatedBeliefs, without_closed
from relcrf.backends.whole_graph import WholeGraph
from relcrf.graph.reduction import Role
from relcrf.graph.scaling import scaled
from relcrf.inference.belief_propagation import BeliefPropagation
from relcrf.inference.result import Observer, Verdict, silent
from relcrf.kernels.distinct import distinct_rows
from relcrf.learning.early_stopping import EarlyStoppingState, stopped_early
from relcrf.learning.lbfgs import AbstractMinimiser, Lbfgs, State
from relcrf.learning.owlqn import Owlqn
from relcrf.learning.penalties import Penalties
from relcrf.learning.risk import LOSSES, Risk, Settings
from relcrf.learning.stochastic import AbstractStochastic, Adam, MetaDescent


@dataclass(frozen=True)
class Stage:
    """A part of learning.

    Args:
        steepness: of the gates' thresholds.
        by_evidence: whether gates look at the evidence.
        judged: whether held-out variables say when it has done enough; before gates have closed they cannot.
        refit: weights of pairs that are 0 stay so, and L1 does not act.
    """

    name: str
    steepness: float
    by_evidence: bool
    judged: bool
    refit: bool = False


STAGES = {
    "evidence": (
        Stage("static", 1.0, False, False),
        Stage("evidence", 1.0, True, True),
        Stage("sharp", 2.0, True, True),
    ),
    "static": (Stage("static", 1.0, False, False), Stage("sharp", 2.0, False, True)),
    "none": (Stage("open", 1.0, False, True),),
}
"""Of learning, by `gates`. Gates that may look at the evidence from the start soon close all pairs of unknown variables, and
what is left overfits."""

REFIT = Stage("refit", 2.0, True, True, refit=True)
"""The last one where L1 has made weights 0: the others learn without it."""

AJAR = 2.0
"""The log odds at which all gates are open at first."""

ROUNDS = 50
"""Of belief propagation in the likelihood that learning begins with."""

STOCHASTIC: dict[str, type[AbstractStochastic]] = {"adam": Adam, "smd": MetaDescent}
RATES = {"adam": 0.03, "smd": 0.1}


@dataclass(frozen=True)
class GatedBackend(AbstractBackend):
    """Factors over pairs have gates, and both learn for the beliefs that a few iterations of propagation end with.

    First the weights are learned by likelihood for a few iterations, with all gates open; then weights and gates together for
    the risk, with gates whose thresholds are soft, and then less soft.

    Args:
        loss: of the labelled variables' beliefs: `squared`, `cross-entropy`, or `f`, 1 less the F measure.
        price: of a message, beside the mean loss; messages are counted for each variable that is asked for.
        gates: `evidence`; `static`: a number for each key, whatever the evidence; `none`: all are open.
        iterations: of belief propagation.
        threshold: of a gate's probability, below which its factor is left out in use. learning_threshold: in learning.
        l2, l1, group_l1: of the weights of factors; groups are those of a key. Where L1 has made weights 0 the others are learned
            once more without it. gate_l2: of the gates' bases.
            evidence_l2: of what they make of the evidence. Penalties are on the sum over variables, of all draws.
        given_share: of the labels that are evidence in learning, as others will be in use. draws: how often it is drawn which.
        unlabelled: `leave`: variables without a label take no part in learning; `infer`: they are hidden.
        pretraining: iterations of likelihood.
        optimiser: in batches of whole components `adam` or `smd`, stochastic meta-descent; or `lbfgs`, which with gates ends in
            worse optima: what all gates have in common moves first, and they open or close all at once.
        batch: components. rate: of the first step of a stochastic one; 0 is its default.
        max_iterations, tolerance: of each stage.
        early_stop: share of what is learned from that is held out to find out when to stop: components, or variables where these
            are few. patience: iterations in which what is held out has not become better before a stage stops.
        seed: of what is drawn.
    """

    name: ClassVar[str] = "gated"
    gated: ClassVar[bool] = True
    loss: str = "squared"
    price: float = 0.0
    gates: str = "evidence"
    iterations: int = 3
    threshold: float = 0.3
    learning_threshold: float = 0.5
    l2: float = 1.0
    l1: float = 0.0
    group_l1: float = 0.0
    gate_l2: float = 0.001
    evidence_l2: float = 10.0
    given_share: float = 0.0
    draws: int = 1
    unlabelled: str = "leave"
    pretraining: int = 5
    optimiser: str = "adam"
    batch: int = 200
    rate: float = 0.0
    max_iterations: int = 100
    tolerance: float = 1e-4
    early_stop: float = 0.1
    patience: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        self._require_one_of("loss", LOSSES)
        self._require_one_of("gates", ("evidence", "static", "none"))
        self._require_one_of("unlabelled", ("leave", "infer"))
        self._require_one_of("optimiser", ("lbfgs", *STOCHASTIC))
        self._require_above_0("iterations", "batch", "draws", "learning_threshold")
        self._require_below_1("threshold", "learning_threshold", "given_share", "early_stop")
        if self.l1 and self.optimiser != "lbfgs":
            self._refuse("l1", f"optimiser '{self.optimiser}' has none: use group_l1, or optimiser=lbfgs")

    @property
    def undivided(self) -> str:
        return "what its gates look at is not cut into pieces"

    def fit(self, problem: Problem, monitor: Monitor, start: Mapping[str, np.ndarray] | None = None) -> Learned:
        """See `AbstractBackend.fit`.

        Args:
            start: vectors that were learned for the same problem, at another price say, to begin with in place of the likelihood;
                but what gates have in common no more open than at first.
        """
        self._require_whole(problem)
        begin = problem.start(self.seed)  # unlabelled variables, whose states have meanings, are not in it yet
        if self.unlabelled == "infer":
            problem = problem.joined_by_unlabelled()
        rng = np.random.default_rng(self.seed)
        batch = 0 if self.optimiser == "lbfgs" else self.batch
        examples = Examples(self._settings, self.name, self.early_stop, batch)
        out, whole = examples.held_out_of(problem, rng)
        may_be_given = np.ones_like(out) if whole else ~out  # of whole components nothing learns
        drawn = [self._with_evidence(problem, may_be_given, rng) for _ in range(self.draws if self.given_share else 1)]
        risks, held = examples.divided(drawn, out, whole, rng)
        stages: list[tuple[str, State]] = []
        if start is None:
            first = self._likelihood(problem, out, begin, monitor)
            point = np.concatenate((first.point, self._first_gates(problem)))
            stages += [("likelihood", first)] if self.pretraining else []
        else:
            # Gates that are open beyond doubt have no gradient by which a higher price could close them.
            ajar = self._first_gates(problem)
            gates = np.where(ajar > 0.0, np.minimum(start["gates"], ajar), start["gates"])
            point = np.concatenate((start["weights"], gates))
        n_asked = sum(risk.n_asked for risk in risks)
        stages_to_come = STAGES[self.gates]
        if self.l1 or self.group_l1:
            stages_to_come = (*(replace(stage, judged=False) for stage in stages_to_come), REFIT)
        for stage in stages_to_come:
            penalties = self._penalties(problem, n_asked, stage, point)
            state = self._run(stage, risks, held if stage.judged else None, penalties, point, monitor)
            stages.append((stage.name, state))
            point = penalties.pruned(state.point)
        weights, gates = point[: problem.graph.layout.size], point[problem.graph.layout.size :]
        return Learned({"weights": weights, "gates": gates}, tuple(stages), self._summary(risks, held, point))

    @property
    def _settings(self) -> Settings:
        return Settings(self.loss, self.price, self.iterations, self.learning_threshold, gated=self.gates != "none")

    def _with_evidence(self, problem: Problem, among: np.ndarray, rng: np.random.Generator) -> Problem:
        """The same with some of the labels as evidence, of variables among some, shape (n_variables,), bool."""
        labelled = (problem.roles == Role.FREE) & (problem.states >= 0)
        chosen = labelled & among & (rng.random(len(labelled)) < self.given_share)
        return replace(problem, roles=np.where(chosen, Role.CLAMPED, problem.roles).astype(np.int8))

    def _likelihood(self, problem: Problem, out: np.ndarray, start: np.ndarray, monitor: Monitor) -> State:
        """The weights with all gates open, after some iterations of likelihood from `start`, without what is held out."""
        problem.reduced(self.name)
        problem = replace(
            problem, roles=np.where(out & (problem.roles == Role.FREE), Role.ABSENT, problem.roles).astype(np.int8)
        )
        if not self.pretraining:
            return State(start, 0.0, np.zeros(len(start)), 0.0, (), (), 0.0)
        whole = problem.sum_of(WholeGraph(self.name, "bp", (("max_iterations", ROUNDS),)))
        optimiser = Lbfgs(self.tolerance, max_iterations=self.pretraining)
        state = maximise_likelihood("likelihood", whole, optimiser, self.l2, lambda: start, monitor)
        return replace(state, status="stopped early") if state.status == "not converged" else state

    def _first_gates(self, problem: Problem) -> np.ndarray:
        """Weights of gates that are all open alike."""
        gates = problem.gates
        shared = ~(gates.of_features(problem.graph) | gates.of_keys(problem.graph))
        return np.where(shared, AJAR, 0.0)

    def _penalties(self, problem: Problem, n_asked: int, stage: Stage, point: np.ndarray) -> Penalties:
        graph, gates = problem.graph, problem.gates
        features = gates.of_features(graph)
        by_evidence = stage.by_evidence and self.gates == "evidence"
        learned = np.zeros_like(features) if self.gates == "none" else ~features | by_evidence
        groups = []
        for block in {graph.groups[number].block for number in gates.groups}:
            n_keys = next(group.features.n_blocks for group in graph.groups if group.block == block)
            places = np.arange(graph.layout.starts[block], graph.layout.starts[block + 1])
            if n_keys:
                groups.append(places.reshape(n_keys, -1))
        moves = np.concatenate((graph.layout.learned(), learned))
        if stage.refit:
            for rows in groups:
                moves[rows] &= point[rows] != 0.0
        return Penalties(
            np.concatenate((graph.layout.l2(self.l2), np.where(features, self.evidence_l2, self.gate_l2))),
            moves,
            tuple(groups),
            0.0 if stage.refit else self.l1,
            0.0 if stage.refit else self.group_l1,
            1.0 / max(n_asked, 1),
        )

    def _run(
        self,
        stage: Stage,
        risks: list[Risk],
        held: Risk | None,
        penalties: Penalties,
        point: np.ndarray,
        monitor: Monitor,
    ) -> State:
        """Learn until it has converged, or what is held out has not become better for a while."""
        n_asked, every = sum(risk.n_asked for risk in risks), np.arange(len(risks))

        def evaluate(at: np.ndarray, batch: np.ndarray = every) -> tuple[float, np.ndarray]:
            value, gradient = penalties(at)
            for risk in (risks[number] for number in batch):
                part, slope = risk(at, stage.steepness)
                share = risk.n_asked * len(risks) / (n_asked * len(batch))
                value += share * part
                gradient += share * slope
            return value, np.where(penalties.learned, gradient, 0.0)

        def begun(state: State) -> State:
            return state if held is None else self._judged(state, held)

        def observe(state: State) -> State:
            state = begun(state)
            monitor.step(stage.name, state, self.max_iterations)
            return state

        method = self._minimiser(len(risks), penalties)
        state = monitor.restore(stage.name, State if held is None else EarlyStoppingState)
        state = method.minimise(evaluate, state or begun(method.start(evaluate, point)), observe)
        is_schedule = self.optimiser in STOCHASTIC and state.status == "not converged"
        return replace(state, status="schedule ended") if is_schedule else state

    def _minimiser(self, n_batches: int, penalties: Penalties) -> AbstractMinimiser[Any]:
        settings: dict[str, Any] = {"tolerance": self.tolerance, "max_iterations": self.max_iterations}
        if self.optimiser in STOCHASTIC:
            rate = self.rate or RATES[self.optimiser]
            return STOCHASTIC[self.optimiser](n_batches, 1, rate, seed=self.seed, **settings)
        return Owlqn(l1=penalties.corners, **settings) if penalties.l1 else Lbfgs(**settings)

    def _judged(self, state: State, held: Risk) -> State:
        """With what held-out variables say of the gates as they are in use; at the end the state is the best there was."""
        loss, messages = held.judged(held.hard(state.point, self.threshold, skip=False))
        stopping = state if isinstance(state, EarlyStoppingState) else EarlyStoppingState.of(state)
        return stopped_early(stopping, loss + self.price * messages, self.patience)

    def _summary(self, risks: list[Risk], held: Risk | None, point: np.ndarray) -> dict[str, float | int | str]:
        found = [risk.hard(point, self.threshold) for risk in risks]
        n_asked = sum(risk.n_asked for risk in risks)
        losses = [risk.judged(one)[0] * risk.n_asked for risk, one in zip(risks, found, strict=True)]
        out: dict[str, float | int | str] = {
            "asked": n_asked,
            "gated_factors": sum(len(risk.messages) for risk in risks),
            "open_factors": sum(int(one.open.sum()) for one in found),
            "messages_each": sum(one.messages for one in found) / max(sum(risk.n_paying for risk in risks), 1),
            "loss": sum(losses) / max(n_asked, 1),
        }
        if held is not None:
            out["held_out_loss"], out["held_out_messages_each"] = held.judged(held.hard(point, self.threshold))
        return out

    def joint(self, problem: Problem, vectors: dict[str, np.ndarray]) -> GatedBeliefs:
        return GatedBeliefs(self.name, self._settings, self.threshold, problem.share(vectors["gates"]))

    def answers_from(self, problem: Problem, vectors: dict[str, np.ndarray]) -> tuple[Answering, ...]:
        risk = self.joint(problem, vectors).risk(problem)
        shares = risk.shares(np.concatenate((vectors["weights"], vectors["gates"])), self.threshold)
        acting = replace(problem, graph=scaled(problem.graph, shares))
        method = partial(BeliefPropagation, max_iterations=self.iterations, tolerance=0.0)
        return (Answering(acting.reduced(self.name), vectors["weights"], method),)

    def infer(self, problem: Problem, vectors: dict[str, np.ndarray], observe: Observer = silent) -> Inferred:
        if self.gates != "none":
            problem = without_closed(problem, vectors["gates"], self.threshold)
        risk = self.joint(problem, vectors).risk(problem)
        found = risk.hard(np.concatenate((vectors["weights"], vectors["gates"])), self.threshold)
        graph, opened = risk.graph, found.open[risk.graph.n_folded :]
        answers = Inferred(
            variables=graph.alone.variables,
            state_start=graph.alone.state_start,
            marginals=found.beliefs,
            map_states=np.empty(0, dtype=np.int32),
            edges=graph.alone.variables[distinct_rows(graph.pairs.edges[opened])],
            log_partition=float("nan"),
            verdict=Verdict("converged", self.iterations),
            messages=found.messages,
        )
        return replace(answers, map_states=answers.modes())
