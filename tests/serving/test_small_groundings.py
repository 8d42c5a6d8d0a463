"""Groundings of requests, which must be bitwise equal to those of the slow path."""

import re
from collections import Counter

import pytest
from generated import generated
from ground_graphs import assert_equal_groundings, engine_factors
from hypothesis import given
from hypothesis import strategies as st
from random_models import DATA, DECLARATIONS, PARTS, frames, tables, templates

import relcrf
from relcrf.data.binding import bind
from relcrf.grounding.ground import ground
from relcrf.serving.cells import FastPathUnavailable
from relcrf.serving.request import RequestSchema
from relcrf.serving.request_grounder import RequestGrounder

RANDOM = re.compile(r"\b[PQTU]\(")
"""Matches uses of random relations."""
RECURSIVE = re.compile(r"Reach|Even|Lonely")
"""Matches recursive relations, which are stored as tables; other derived relations are views."""
OBSERVED = "\n".join(line for line in DECLARATIONS.split("\n") if not line.startswith("predict relation"))


def both(declarations, bodies, data):
    """Return the groundings of the fast path and of the slow path."""
    spec = relcrf.parse(declarations + "\n".join(dict.fromkeys(bodies))).spec
    table_frames = frames(*data)
    request = RequestSchema(spec).read({n: t for n, t in table_frames.items() if spec.relation(n) or n[0] in "EF"})
    known = {"W": ("v", "unseen")}
    grounder = RequestGrounder(spec, known)
    try:
        fast = grounder.ground(request)
    except FastPathUnavailable as error:
        pytest.fail(f"the fast path is unavailable: {error}")
    return fast, ground(bind(spec, relcrf.Dataset(table_frames), known))


def fill_names(texts):
    return [text.replace("NAME", f"t{k}") for k, each in enumerate(texts) for text in each]


@pytest.mark.slow
@generated(60)
@given(tables(), st.lists(templates(), min_size=1, max_size=3))
def test_random_models_ground_equally(data, bodies):
    kept = [text for text in fill_names(bodies) if not RANDOM.search(text)] or ["template t(a: E) over a.d"]
    assert_equal_groundings(*both(OBSERVED, kept, data))


@pytest.mark.parametrize("data", DATA, ids=["whole", "gaps"])
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("has_views", [True, False], ids=["views", "recursive"])
def test_language_features_ground_equally(data, part, has_views):
    kept = [text for text in PARTS[part] if not RANDOM.search(text)]
    if has_views:
        kept = [text for text in kept if not RECURSIVE.search(text)]
    elif kept:
        kept.append("template recursive(a: E, b: E) where Reach(a, b) over a.d, b.d")
    if kept:
        assert_equal_groundings(*both(OBSERVED, kept, data))


def factors(grounding):
    """Count the factors with their features, independently of whether repeated table rows are stored once or many times."""
    found = Counter()
    for group in grounding.graph.groups:
        for scope, pattern, entries in engine_factors(grounding, group, grounding.templates[group.block]):
            found[group.block, scope, pattern, tuple(sorted((k, round(v, 9)) for k, v in entries.items()))] += 1
    return found


@pytest.mark.parametrize("data", DATA, ids=["whole", "gaps"])
def test_random_relations_ground_equally(data):
    fast, slow = both(DECLARATIONS, PARTS["scopes"], data)
    assert fast.blocks == slow.blocks and fast.states.tolist() == slow.states.tolist()
    assert factors(fast) == factors(slow)


def test_tables_are_loaded_when_sql_reads_them():
    text = "domain D = { x, y }\nentity E { predict d : D }\nrelation R(a: E, b: E)"
    spec = relcrf.parse(f"{text}\ntemplate t(a: E, b: E) where R(a, b) over a.d, b.d").spec
    grounder, schema = RequestGrounder(spec, {}), RequestSchema(spec)
    for keys in "ab", "abc", "a":
        pairs = [{"a": one, "b": other} for one in keys for other in keys]
        grounding = grounder.ground(schema.read({"E": [{"id": key, "d": "x"} for key in keys], "R": pairs}))
        assert grounding.graph.groups[0].n_factors == len(pairs)
        if keys != "ab":  # the tables of the first request are never loaded
            assert grounding.bound.count_rows("rel.R") == len(pairs)
            with grounding.bound.cursor() as cursor:
                assert cursor.execute('SELECT count(*) FROM "ent.E"').fetchone() == (len(keys),)


def test_plans_in_memory_and_in_the_database_mix():
    bodies = ["(a: E, b: E) where R(a, b) over a.d, b.d", "(a: E, b: E) where R(a, b) and a.r > 0 over a.d, b.d"]
    for data in DATA:
        assert_equal_groundings(*both(OBSERVED, [f"template t{k}{body}" for k, body in enumerate(bodies)], data))
