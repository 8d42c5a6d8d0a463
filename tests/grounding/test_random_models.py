"""Random models on random small tables: the ground graph equals that of the reference implementation."""

from collections import Counter

import pytest
from evaluator import format_value
from generated import generated
from ground_graphs import engine_factors, summed, variable
from hypothesis import given
from hypothesis import strategies as st
from random_models import DATA, DECLARATIONS, PARTS, frames, naive_model, tables, templates

import relcrf
from relcrf.data.binding import bind
from relcrf.grounding.blocks import HARD_WEIGHT
from relcrf.grounding.ground import ground
from relcrf.grounding.preview import plan_templates


def expected_state(listed, block, arguments, things):
    """Return the value of a variable in the tables, or None."""
    if block.attribute is not None:
        row = next(row for key, row in things[block.owner].items() if str(key) == arguments[0])
        return None if block.is_latent else row[block.attribute]
    rows = listed[block.owner]
    if rows is None:
        return None
    named = {tuple(map(str, k)): v for k, v in rows.items()}
    return named.get(arguments, None if block.owner == "Q" else False)


@generated(12)
@given(tables(), st.lists(templates(), min_size=2, max_size=8))
def test_random_ground_graph_equals_reference(data, bodies):
    compare(data, [text.replace("NAME", f"t{k}") for k, texts in enumerate(bodies) for text in texts])


def compare(data, declarations):
    things, *_, listed = data
    declarations = list(dict.fromkeys(declarations))
    spec = relcrf.parse(DECLARATIONS + "\n".join(declarations)).spec
    naive = naive_model(spec, *data)

    bound = bind(spec, relcrf.Dataset(frames(*data)))
    if not naive.domains["W"]:
        return
    grounding = ground(bound)
    for block in grounding.blocks:
        if block.attribute is None:
            admitted = {tuple(map(format_value, t)) for t in naive.tuples[block.owner]}
            assert {variable(grounding, v)[1] for v in range(block.start, block.start + block.count)} == admitted
        for v in range(block.start, block.start + block.count):
            expected_value = expected_state(listed, block, variable(grounding, v)[1], things)
            state = grounding.states[v]
            assert (block.values[state] if state >= 0 else None) == (
                None if expected_value is None else format_value(expected_value)
            )
    planned = {t.name: t for t in plan_templates(bound)}
    unnamed = iter(range(1, 99))
    for declared in (d for d in spec.declarations if d in spec.templates or d in spec.rules):
        name = declared.name or f"rule {next(unnamed)}"
        groups = [g for g, n in zip(grounding.graph.groups, grounding.group_names, strict=True) if n == name]
        expected = [
            (scope, pattern, {(keys, d): value for d, value in enumerate(features)})
            for scope, pattern, keys, features in naive.factors(declared)
        ]
        found = []
        for group in groups:
            block, info = grounding.graph.layout.blocks[group.block], grounding.templates[group.block]
            assert block.name == (declared.options.weights or name)
            assert (block.initial, block.fixed) == weight(declared)
            found += engine_factors(grounding, group, info)
        assert summed(found) == summed(expected)
        assert grounding.bindings[name] == planned[name].bindings
        assert sum(g.nbytes for g in groups) == planned[name].bytes
        assert sum(g.n_factors for g in groups) == planned[name].factors
        for group in groups:
            assert planned[name].weights == grounding.graph.layout.blocks[group.block].size
        if groups and len(groups[0].scope) > 1:
            assert Counter(scope for scope, _, _ in found) == Counter(scope for scope, _, _ in expected)


def weight(declared):
    if getattr(declared, "is_hard", False):
        return HARD_WEIGHT, True
    fixed = getattr(declared, "weight", None)
    return (0.0, False) if fixed is None else (fixed, True)


@pytest.mark.parametrize("data", DATA, ids=["whole", "gaps"])
@pytest.mark.parametrize("part", PARTS)
def test_language_constructs_equal_reference(data, part):
    compare(data, PARTS[part])
