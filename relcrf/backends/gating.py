"""The gates of a ground graph, and what their weights mean."""

from __future__ import annotations

from dataclasses import replace

from relcrf.errors import Diagnostic, UsageError
from relcrf.graph.factor_graph import FactorGroup
from relcrf.graph.gating import GatedGroup, Gating, block_for, has_keys
from relcrf.graph.weights import WeightBlock, WeightLayout
from relcrf.grounding.blocks import TemplateInfo
from relcrf.grounding.grounding import Grounding
from relcrf.grounding.keys import KeyDictionary

OPEN = "open"
"""The pattern of a gate's weights."""

STATUSES = ("asked", "hidden")
"""Of variables that are no evidence."""

SHARED = "all keys"
"""What stands in the place of a key for the weights that all keys share."""


def gating_of(grounding: Grounding) -> tuple[Gating, tuple[TemplateInfo, ...]]:
    """Gates on all factors over two variables: by what the model says where it does, else by their statuses.

    Groups with the same weights have the same gates, unless a gate of the model speaks of one of them.

    Raises:
        UsageError: where the model says it, and it was not grounded.
    """
    graph = grounding.graph
    if grounding.gates is None and grounding.spec.gates:
        message = f"the model has a gate on '{grounding.spec.gates[0].template}', and what it looks at was not grounded"
        raise UsageError(Diagnostic("E318", message, hint="ground it by model.ground(data, with_gates=True)"))
    by = {one.group: one for one in grounding.gates.groups} if grounding.gates else {}
    groups: list[GatedGroup | None] = []
    places: dict[tuple[int, int | None, tuple[int, ...]], int] = {}
    weights: list[WeightBlock] = []
    meanings: list[TemplateInfo] = []
    for number, group in enumerate(graph.groups):
        if len(group.scope) != 2:
            groups.append(None)
            continue
        features = by[number].features if number in by else None
        kind = (group.block, by[number].block if number in by else None, group.cardinalities)
        if kind not in places:
            places[kind] = len(weights)
            info = _meaning(grounding, number, group, kind[1])
            if any(other.name == info.name for other in meanings):
                info = replace(info, name=f"{info.name} of {group.cardinalities}")
            weights.append(block_for(group, features, info.name))
            meanings.append(info)
        groups.append(GatedGroup(places[kind], features))
    return Gating(tuple(groups), WeightLayout(tuple(weights))), tuple(meanings)


def _meaning(grounding: Grounding, number: int, group: FactorGroup, gate: int | None) -> TemplateInfo:
    template = grounding.templates[group.block]
    keys = None
    if has_keys(group):
        assert template.keys is not None, "factors with keys have a template with keys"
        # Its length is no key's, so that it can be none.
        is_single = bool(template.keys.values) and len(template.keys.values[0]) == 1
        shared = (SHARED, "") if is_single else (SHARED,)
        keys = KeyDictionary(None, (*template.keys.values, shared))
    names: tuple[str, ...]
    grows = gate is not None and grounding.gate_templates[gate].keys is not None
    if gate is None:
        first, second = _status_names(grounding, group)
        names = tuple(f"{a}, {b}" for a in first for b in second)
    else:
        names = _feature_names(grounding.gate_templates[gate])
    name = template.name if gate is None else f"{template.name} by {grounding.gate_templates[gate].name}"
    return TemplateInfo(name, ("base", *names), (OPEN,), keys, template.bindings, grows)


def _feature_names(info: TemplateInfo) -> tuple[str, ...]:
    if info.keys is None:
        return info.features
    return tuple(f"{', '.join(key)} in {name}" for key in info.keys.values for name in info.features)


def _status_names(grounding: Grounding, group: FactorGroup) -> list[tuple[str, ...]]:
    out = []
    for place, k in zip(group.scope, group.cardinalities, strict=True):
        values = grounding.block_of(int(place[0])).values if len(place) else tuple(str(state) for state in range(k))
        out.append((*values, *STATUSES))
    return out
