"""TR-MRF: features chosen out of the model's candidates while their weights are learned.

Source: Lao & Zhu, Contrastive Feature Induction for Efficient Structure Learning of Conditional Random Fields (2014).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from relcrf.backends.answering import Answering
from relcrf.backends.base import AbstractBackend, Inferred, Learned, Monitor, Problem, maximise_likelihood
from relcrf.backends.pseudo import Blankets
from relcrf.backends.sharded import ShardedProblem
from relcrf.backends.whole_graph import WITH_MARGINALS, WholeGraph
from relcrf.errors import Diagnostic, UsageError
from relcrf.graph.blanket import blanket_graph
from relcrf.graph.candidates import PairSpace, TableSpace
from relcrf.graph.reduction import Role
from relcrf.graph.triples import Space, TripleSpace
from relcrf.inference.result import Observer, silent
from relcrf.learning.contrastive import ContrastiveDivergence, blocks_by_key
from relcrf.learning.induced import AbstractInduced, Chosen, InducedLikelihood, NodeTables
from relcrf.learning.lbfgs import Lbfgs, State
from relcrf.structure.candidate_scores import Scorer
from relcrf.structure.gains import worth
from relcrf.structure.induction import Induction, Strengths
from relcrf.structure.literal_histograms import literal_histograms

MOST_WEIGHTS = 1 << 24
"""Of `full`: with the optimiser's memory some 4 GiB."""

MOST_CELLS = 1 << 27
"""Of `grafting`: a gigabyte a table, of which there are four."""


@dataclass(frozen=True)
class TrMrfBackend(AbstractBackend):
    """Pseudo-likelihood or contrastive divergence with L1, from a model of the templates alone that candidates join.

    First the templates' weights are learned, by the pseudo-likelihood of the labels. Then in each round the candidates whose
    gradients are beyond their L1 penalty and the largest join the model, and the optimiser does a few iterations; when none is
    left it goes on to convergence. A candidate whose weight is 0 at the end leaves.

    Args:
        objective: `pseudo`, pseudo-likelihood; or `cd`, mean-field contrastive divergence, which learns latent attributes too.
        cd_steps: of `cd`, how often its mean field updates each variable, from the labels on.
        update: of `cd`: `blocks`, see `blocks_by_key`; or `parallel`, all variables at once: that is faster, but variables that
            agree strongly swap their states, which no gradient sees, so that weights may grow without end.
        unlabelled: variables of predicted attributes without a label. `leave`: they take no part in learning. `infer`: in `cd`,
            the part of the latent ones; in `pseudo` they are filled in with their probabilities under what was learned, given
            all labels, as neighbours alone, and all is learned anew from there, `fill` times.
        structure: how candidates are found. `cfi`: contrastive feature induction, by the samples with large errors and large
            signals. `grafting`: by the gradients of all. `full`: all are in the model from the start.
        l1, l2: of candidates and of all weights, where a template does not set its own; penalties on the sum over variables.
        error, signal: thresholds of `cfi`, see `Scorer`.
        batch: how many candidates join in a round. steps: iterations of the optimiser in a round.
        max_iterations, tolerance: of the optimiser, in each stage.
        early_stop: share of the labels that are held out to find out when to stop, after which all are learned from; 0 stops
            when no candidate is left.
        patience: rounds in which the held-out labels have not become more probable before it stops.
        inference: a method that has marginals, by name; see docs/inference.
        seed: of what is held out, and of methods that draw.
    """

    name: ClassVar[str] = "trmrf"
    chooses: ClassVar[bool] = True
    objective: str = "pseudo"
    cd_steps: int = 1
    update: str = "blocks"
    unlabelled: str = "leave"
    structure: str = "cfi"
    l1: float = 1.0
    l2: float = 0.1
    error: float = 0.1
    signal: float = 0.1
    batch: int = 50
    steps: int = 1
    max_iterations: int = 500
    tolerance: float = 1e-4
    early_stop: float = 0.0
    patience: int = 5
    fill: int = 2
    inference: str = "mf"
    seed: int = 0

    def __post_init__(self) -> None:
        self._require_one_of("objective", ("pseudo", "cd"))
        self._require_one_of("update", ("parallel", "blocks"))
        self._require_one_of("unlabelled", ("leave", "infer"))
        self._require_one_of("structure", ("cfi", "grafting", "full"))
        self._require_one_of("inference", WITH_MARGINALS)
        self._require_above_0("batch", "steps", "cd_steps")
        self._require_below_1("early_stop")

    def fit(self, problem: Problem, monitor: Monitor) -> Learned:
        if isinstance(problem, ShardedProblem):
            message = f"backend '{self.name}' needs the graph in one piece, and it is taken in pieces"
            hint = "candidates are chosen by all samples at once: give more --memory, and no --workers"
            raise UsageError(Diagnostic("E309", message, hint=hint))
        _require_literals(problem.candidates)
        pairs = _pairs(problem.candidates) if self.structure == "full" else ()
        if self.structure != "cfi":
            _require_room(problem.candidates, self.structure)
        start = problem.start(self.seed)  # unlabelled variables, whose states have meanings, are not in it yet
        if self.objective == "cd" and self.unlabelled == "infer":
            problem = problem.joined_by_unlabelled()
        hidden = (problem.roles == Role.FREE) & (problem.states < 0)
        if hidden.any() and self.objective == "pseudo":
            message = (
                f"backend '{self.name}' cannot learn latent attributes: pseudo-likelihood needs every neighbour's state"
            )
            raise UsageError(Diagnostic("E307", message, hint="use --set objective=cd, or --backend ess"))
        labelled = replace(problem, roles=np.where(hidden, Role.ABSENT, problem.roles).astype(np.int8))
        optimiser, layout = Lbfgs(self.tolerance, max_iterations=self.max_iterations), problem.graph.layout
        unary = maximise_likelihood(
            "unary", layout, labelled.sum_of(Blankets()), optimiser, self.l2, layout.initial, monitor
        )
        stages, point = [("unary", unary)], unary.point + (start - layout.initial())
        likelihood = self._likelihood(labelled, None)
        model = self._divergence(problem) if self.objective == "cd" else likelihood
        chosen, seen = Chosen.none(), {"before candidates join": literal_histograms(model, point, self._scorer)}
        if self.structure == "full":
            chosen = Chosen.everything(pairs)
            point = np.append(point, np.zeros(len(chosen)))
        fillings = self.fill if self.objective == "pseudo" and self.unlabelled == "infer" else 0
        for number in range(fillings + 1):
            if number:
                model = likelihood = self._likelihood(labelled, self._filled(labelled, chosen, point))
            ending = f"_{number + 1}" if number else ""
            for name, state in self._learn(model, problem.candidates, point, chosen, ending, monitor):
                stages.append((name, state))
                point, chosen = state.point, Chosen.of(state.kept["chosen"])
        summary: dict[str, float | int | str] = {"variables": model.base.n_nodes, "hidden": int(hidden.sum())}
        seen["at the end"] = literal_histograms(model.having(chosen), point, self._scorer)
        figures = {name: {when: found[name] for when, found in seen.items()} for name in ("errors", "signals")}
        return replace(self._learned(labelled, likelihood, point, chosen, stages, summary), histograms=figures)

    @property
    def _scorer(self) -> Scorer:
        return Scorer(self.error, self.signal, exhaustive=self.structure != "cfi")

    def _likelihood(self, problem: Problem, filled: NodeTables | None) -> InducedLikelihood:
        """That of the labels with nothing chosen, and with unlabelled variables as they are filled in; or without these."""
        present = problem.roles == Role.FREE
        if filled is not None:
            present[filled.variables] = True
        base = blanket_graph(problem.graph, problem.roles, problem.states)
        spaces = tuple(space.only(present) for space in problem.candidates)
        return InducedLikelihood.of(base, problem.states[base.variables], spaces, filled)

    def _filled(self, problem: Problem, chosen: Chosen, point: np.ndarray) -> NodeTables:
        """The unlabelled variables' probabilities under a model, given all labels."""
        roles = np.where(problem.roles == Role.FREE, Role.CLAMPED, Role.FREE).astype(np.int8)
        asked = replace(problem, roles=roles, states=np.where(roles == Role.FREE, -1, problem.states))
        pairs, order = _by_space(problem, chosen, point)
        found = self.infer(asked.having(pairs), {"weights": point[order]})
        return NodeTables(found.variables, found.state_start, found.marginals)

    def _learn(
        self,
        model: InducedLikelihood | ContrastiveDivergence,
        spaces: tuple[Space, ...],
        point: np.ndarray,
        chosen: Chosen,
        ending: str,
        monitor: Monitor,
    ) -> list[tuple[str, State]]:
        """The stages of one pass; the last has what was learned.

        Args:
            ending: of their names.
        """
        trained = np.random.default_rng(self.seed).random(model.base.n_nodes) >= self.early_stop
        induction = self._induction(replace(model, trained=trained), spaces)
        state = self._stage(f"induction{ending}", induction, point, chosen, monitor)
        stages = [(f"induction{ending}", state)]
        if self.early_stop:
            last, chosen = replace(induction, model=model, batch=None), Chosen.of(state.kept["chosen"])
            stages.append((f"weights{ending}", self._stage(f"weights{ending}", last, state.point, chosen, monitor)))
        return stages

    def _learned(
        self,
        problem: Problem,
        model: InducedLikelihood,
        point: np.ndarray,
        chosen: Chosen,
        stages: list[tuple[str, State]],
        summary: dict[str, float | int | str],
    ) -> Learned:
        """The candidates whose weights are not 0, with what they are worth."""
        value, none = worth(model.having(chosen), problem.candidates, point), np.zeros(model.n_base)
        pairs, order = _by_space(problem, chosen, point)
        summary |= {
            "candidates": sum(space.n_pairs for space in problem.candidates if isinstance(space, PairSpace)),
            "chosen": len(order) - model.n_base,
        }
        vectors = {"weights": point, "gain": np.append(none, value.gain), "support": np.append(none, value.support)}
        return Learned({name: vector[order] for name, vector in vectors.items()}, tuple(stages), summary, pairs)

    def _divergence(self, problem: Problem) -> ContrastiveDivergence:
        base, spaces = problem.reduced(self.name), _spaces(problem)
        blocks = blocks_by_key(base, spaces) if self.update == "blocks" else None
        return ContrastiveDivergence.of(base, problem.states[base.variables], spaces, self.cd_steps, blocks)

    def _stage(
        self, name: str, induction: Induction[AbstractInduced], point: np.ndarray, chosen: Chosen, monitor: Monitor
    ) -> State:
        """A stage from where the monitor remembers it, or else from its beginning."""
        state = monitor.restore(name) or induction.begin(point, chosen)
        return induction.run(state, lambda state: monitor.step(name, state, self.max_iterations))

    def _induction(
        self, model: InducedLikelihood | ContrastiveDivergence, spaces: tuple[Space, ...]
    ) -> Induction[AbstractInduced]:
        layout = model.base.graph.layout
        strengths = Strengths(
            layout.l1(0.0),
            layout.l2(self.l2),
            layout.learned(),
            [self.l1 if space.l1 is None else space.l1 for space in spaces],
            [self.l2 if space.l2 is None else space.l2 for space in spaces],
        )
        batch = None if self.structure == "full" else self.batch
        return Induction(
            model,
            spaces,
            self._scorer,
            strengths,
            batch,
            self.steps,
            self.patience,
            self.tolerance,
            self.max_iterations,
        )

    def joint(self, problem: Problem, vectors: dict[str, np.ndarray]) -> WholeGraph:
        return WholeGraph(self.name, self.inference, (("seed", self.seed),))

    def answers_from(self, problem: Problem, vectors: dict[str, np.ndarray]) -> tuple[Answering, ...]:
        return (self.joint(problem, vectors).answering(problem, vectors["weights"]),)

    def infer(self, problem: Problem, vectors: dict[str, np.ndarray], observe: Observer = silent) -> Inferred:
        return self.joint(problem, vectors).infer(problem, vectors["weights"], observe)


def _require_literals(spaces: tuple[Space, ...]) -> None:
    """Refuses spaces of tables.

    Raises:
        UsageError: where there is one.
    """
    for space in spaces:
        if isinstance(space, TableSpace):
            message = f"backend '{TrMrfBackend.name}' chooses literals, and candidates '{space.name}' are tables"
            hint = "use --backend grafting, or join two literals in 'over' by 'and'"
            raise UsageError(Diagnostic("E396", message, hint=hint))


def _pairs(spaces: tuple[Space, ...]) -> tuple[PairSpace, ...]:
    """Spaces whose candidates can all be in a model from the start.

    Raises:
        UsageError: where there are triples among them.
    """
    for space in spaces:
        if isinstance(space, TripleSpace):
            message = (
                f"'structure=full' takes all candidates at once, and '{space.name}' are triples, which grow from pairs"
            )
            raise UsageError(Diagnostic("E394", message, hint="use structure=cfi or structure=grafting"))
    return tuple(space for space in spaces if isinstance(space, PairSpace))


def _require_room(spaces: tuple[Space, ...], structure: str) -> None:
    """Refuses spaces that could not be held.

    Raises:
        UsageError: where all candidates would be written down, or dense tables of literals, and are too many.
    """
    for space in spaces:
        if structure == "full":
            size = space.n_pairs if isinstance(space, PairSpace) else 0
            most, what = MOST_WEIGHTS, "weights, one for each candidate"
        else:
            size = space.n_samples * max(side.n_keys for side in space.sides)
            most, what = MOST_CELLS, "cells in a table of samples and keys"
        if size > most:
            message = f"'structure={structure}' would hold {size:,} {what}, for '{space.name}'; {most:,} are the most"
            hint = "use structure=cfi, which holds neither, or narrow the 'where' of the candidates"
            raise UsageError(Diagnostic("E395", message, hint=hint))


def _spaces(problem: Problem) -> tuple[Space, ...]:
    """The candidates between free variables."""
    return tuple(space.only(problem.roles == Role.FREE) for space in problem.candidates)


def _by_space(problem: Problem, chosen: Chosen, point: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The chosen of weights other than 0: the pairs of each space by its name, ascending, and the places of their weights in
    `point`, with those of the base before them.
    """
    n_base = problem.graph.layout.size
    kept, pairs = [np.arange(n_base)], {}
    for number, space in enumerate(problem.candidates):
        places = chosen.places(number)
        places = places[point[n_base + places] != 0.0]
        places = places[np.lexsort((chosen.second[places], chosen.first[places]))]
        if len(places):
            pairs[space.name] = chosen.pairs(places)
            kept.append(n_base + places)
    return pairs, np.concatenate(kept)
