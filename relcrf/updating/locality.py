"""The conditions under which only the connected components with changed rows have to be grounded and inferred again.

The rows of a component determine its factors if no declaration relates entities that no row connects, and no value depends on
the whole tables. Its predictions do not depend on other components if the backend infers components independently.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from relcrf.backends.base import AbstractBackend
from relcrf.backends.likelihood_backend import AbstractLikelihoodBackend
from relcrf.backends.propagation import AbstractPropagationBackend
from relcrf.backends.provenance import TrainingProtocol
from relcrf.errors import listing
from relcrf.inference.result import Verdict
from relcrf.model import expressions as e
from relcrf.model.disjunctions import extract_disjunctions
from relcrf.model.functions import TABLE_STATISTICS, TEXT_SIMILARITIES, external_function
from relcrf.model.spec import DerivedRelation, ModelSpec, NearestNeighbours, OpenDomain, Template
from relcrf.model.typing import NameScope


def global_model_reason(spec: ModelSpec) -> str:
    """Return why the factors of a component may depend on rows of other components; empty if they do not."""
    if spec.random_relations:
        return f"'{spec.random_relations[0].name}' predicts tuples"
    if spec.features:
        return f"feature '{spec.features[0].name}' is computed from whole tables"
    if functions := sorted(
        name for name in spec.functions if name in (*TABLE_STATISTICS, *TEXT_SIMILARITIES) or external_function(name)
    ):
        return f"{listing(functions)} may depend on all rows of a table"
    for entity in spec.entities:
        for attribute in (a for a in entity.attributes if a.is_random):
            if attribute.is_number:
                return f"'{attribute.name}' is a number"
            if attribute.latent:
                return f"'{attribute.name}' is latent"
            if isinstance(spec.domain(getattr(attribute.type, "domain", "")), OpenDomain):
                return f"the values of '{attribute.name}' are read from the data"
    simple = extract_disjunctions(spec)
    for derived in simple.derived_relations:
        if isinstance(derived.definition, NearestNeighbours):
            return f"'{derived.name}' selects nearest neighbours"
    declarations: tuple[Template | DerivedRelation, ...] = (*simple.templates, *simple.derived_relations)
    for declared in declarations:
        if any(_unconnected_scopes(simple, declared)):
            return f"no row connects the entities of '{declared.name}'"
    return ""


def global_training_reason(system: AbstractBackend, protocol: TrainingProtocol) -> str:
    """Return why the weights or predictions may depend on components without labels; empty if they do not."""
    name = f"backend '{system.name}'"
    if not isinstance(system, AbstractLikelihoodBackend) or isinstance(system, AbstractPropagationBackend):
        return f"{name} does not learn from each component separately"
    if system.unshardable_reason:
        return f"{name}: {system.unshardable_reason}"
    if system.unlabelled != "ignore":
        return f"{name} learns from entities without labels (unlabelled={system.unlabelled})"
    if system.unary_l2:
        return "the penalty depends on the features of all entities (unary_l2)"
    if protocol.split is not None:
        return "the run holds out labels"
    return ""


def is_local_inference(system: AbstractBackend, verdict: Verdict) -> bool:
    """Return True if the probabilities do not depend on other components, up to the tolerance of the method."""
    is_local = verdict.status == "exact" or (verdict.is_good and getattr(system, "inference", "") == "bp")
    return is_local and not getattr(system, "balanced", False)


def _unconnected_scopes(spec: ModelSpec, declared: Template | DerivedRelation) -> Iterator[NameScope]:
    """Yield the scopes of a declaration, and of its aggregates, in which rows do not connect all entities."""
    if isinstance(declared, Template):
        where, parts = declared.where, (*declared.over, *declared.per, *declared.by)
    else:
        assert not isinstance(declared.definition, NearestNeighbours)
        where, parts = declared.definition, ()
    scope = NameScope(spec, declared.parameters, where)
    if not _is_connected(scope, outer=()):
        yield scope
    for part in (*parts, *e.conjuncts(where)):
        for inner, node in scope.walk(part):
            if isinstance(node, e.Aggregate):
                nested = inner.aggregate_scope(node)
                if not _is_connected(nested, outer=tuple(inner.type_names)):
                    yield nested


def _is_connected(scope: NameScope, outer: tuple[str, ...]) -> bool:
    """Return True if atoms that must be true connect all entities of a scope; those of the outer scope are connected."""
    disjuncts = (None,) if scope.where is None else e.disjuncts(scope.where)
    return all(_connects(scope, disjunct, outer) for disjunct in disjuncts)


def _connects(scope: NameScope, condition: e.Expression | None, outer: tuple[str, ...]) -> bool:
    """Return True if the atoms among the conjuncts of a condition connect all entities of a scope."""
    group = {name: {name} for name, kind in scope.type_names.items() if scope.spec.entity(kind) is not None}

    def connect(names: Iterable[str]) -> None:
        connected = set().union(*(group[name] for name in names if name in group))
        for name in connected:
            group[name] = connected

    connect(outer)
    for conjunct in e.conjuncts(condition):
        if isinstance(conjunct, e.Atom):
            connect(argument.name for argument in conjunct.arguments if isinstance(argument, e.Name))
    return len({frozenset(members) for members in group.values()}) <= 1
