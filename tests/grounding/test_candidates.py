"""Spaces of candidates: the factors of what is chosen are those that the same text grounds into as a template."""

from itertools import product

import numpy as np
import pytest
from traits import TEXT, traits_world
from triples import NAMES as TRIPLES
from triples import TEXT as WITH_TRIPLES

import relcrf
from relcrf.errors import UsageError
from relcrf.graph.candidates import KeyRelation

NAMES = ("traits", "unlike", "subject", "near", "reversed", "moods", "cross")


@pytest.fixture(scope="module")
def ground():
    data = relcrf.Dataset(traits_world())
    expanded = TEXT.replace("candidates ", "template ")
    return relcrf.parse(TEXT).ground(data), relcrf.parse(expanded).ground(data)


def factors(grounding, name):
    """For each key of a template its factors: pairs of variables, and the literals' truth in each joint state."""
    info = next(t for t in grounding.templates if t.name == name)
    out = {}
    for group in grounding.groups(name):
        key = group.features.block_of(slice(0, group.n_factors))
        scope = [np.asarray(place) for place in group.scope]
        for k, *variables in zip(key.tolist(), *(place.tolist() for place in scope), strict=True):
            table = group.patterns[:, 0].reshape(group.cardinalities)
            # A template numbers its places as its formula mentions them; so do the sides.
            out.setdefault(info.keys.values[k], []).append((*variables, table.tobytes()))
    return {key: sorted(found) for key, found in out.items() if found}


@pytest.mark.parametrize("name", NAMES)
def test_every_pair_is_what_the_template_grounds_into(ground, name):
    grounding, expanded = ground
    space = next(s for s in grounding.candidates if s.pairs.name == name)
    pairs = space.pairs.all_pairs()
    assert len(pairs) == space.pairs.n_pairs
    texts = space.texts(pairs)
    assert len(set(texts)) == len(texts)
    assert factors(grounding.with_candidates({name: texts}), name) == factors(expanded, name)


def test_the_plan_tells_the_cells(ground):
    grounding, _ = ground
    told = {row.name: row.cells for row in relcrf.parse(TEXT).plan(relcrf.Dataset(traits_world()))}
    held = {space.pairs.name: sum(len(side.sample) for side in space.pairs.sides) for space in grounding.candidates}
    assert all(told[name] >= cells > 0 for name, cells in held.items())
    assert told["traits"] == held["traits"] and not told["trait_prior"]


def test_some_pairs_keep_their_order_and_strangers_their_place(ground):
    grounding, expanded = ground
    keys = (("rich", "aids"), ("nowhere", "trades"), ("big", "visits"))
    placed = grounding.with_candidates({"subject": keys})
    assert placed.templates[-1].keys.values == keys and placed.graph.layout.blocks[-1].size == 3
    everything = factors(expanded, "subject")
    assert factors(placed, "subject") == {k: everything[k] for k in keys if k in everything}
    assert placed.instances("subject", 0, 2).columns["v"][0] in ("aids", "visits")


def test_nothing_is_expanded(ground):
    grounding, _ = ground
    for space in grounding.candidates:
        for side in (space.pairs.first, space.pairs.second):
            assert len(side.sample) <= side.n_keys * space.pairs.n_samples


def test_pairs_of_one_literal_with_itself_are_none():
    text = TEXT + "candidates loose(n: Nation, s: Trait, t: Trait) over trait(n, s) and trait(n, t) per s, t\n"
    grounding = relcrf.parse(text).ground(relcrf.Dataset(traits_world()))
    space = grounding.candidates[-1]
    assert space.pairs.relation == KeyRelation.DISTINCT
    assert all(a != b for a, b in space.pair_texts(space.pairs.all_pairs()))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("c(n: Nation, t: Trait) over trait(n, t) per t", "not a conjunction"),
        ("c(n: Nation, s: Trait, t: Trait) over trait(n, s) or trait(n, t) per s, t", "not a conjunction"),
        ("c(n: Nation, s: Trait, t: Trait) over trait(n, s) and trait(n, t) per s", "no key in 'per'"),
        ("c(n: Nation, s: Trait, t: Trait) over trait(n, s) and trait(n, t) per s, t by 2", "cannot have features in 'by'"),
        (
            "c(n: Nation, m: Nation, t: Trait, v: Verb) where Near(n, m) over trait(n, t) and n.mood == m.mood per t",
            "does not consist of one random term",
        ),
        ("c(n: Nation, s: Trait, t: Trait) where s <= t over trait(n, s) and trait(n, t) per s, t", "not a supported condition"),
        ("c(n: Nation, s: Trait, t: Trait) over trait(n, s) and trait(n, t) per s, t, n", "'n' is not a name of one"),
    ],
)
def test_what_is_no_pair_of_literals(line, why):
    grounding = relcrf.parse(TEXT + f"candidates {line}\n").ground(relcrf.Dataset(traits_world()))
    with pytest.raises(UsageError, match=rf"E391[\s\S]*{why}"):
        _ = grounding.candidates


@pytest.fixture(scope="module")
def triples():
    data = relcrf.Dataset(traits_world())
    expanded = WITH_TRIPLES.replace("candidates ", "template ")
    return relcrf.parse(WITH_TRIPLES).ground(data), relcrf.parse(expanded).ground(data)


def space_of(grounding, name):
    return next(s for s in grounding.candidates if s.pairs.name == name)


def every_triple(space):
    """All keys that the relations of a space allow, shape (n, 3)."""
    keys = np.array(list(product(*(range(side.n_keys) for side in space.sides))))
    kept = [relation.allows(keys[:, i], keys[:, j]) for (i, j), relation in space.relations.items()]
    return keys[np.all(kept, axis=0)]


@pytest.mark.parametrize("name", TRIPLES)
def test_every_triple_is_what_the_template_grounds_into(triples, name):
    grounding, expanded = triples
    space = space_of(grounding, name)
    keys = every_triple(space.pairs)
    pairs = space.pairs.numbered(keys)
    np.testing.assert_array_equal(space.pairs.keys(pairs), keys)
    texts = space.texts(pairs)
    assert len(set(texts)) == len(texts) and len(texts[0]) == 3
    again, kept = space.found(texts)
    np.testing.assert_array_equal(again, pairs)
    assert len(kept) == len(texts)
    wanted = factors(expanded, name)
    if name == "loose":  # a template may speak of one variable twice; that is no candidate
        wanted = {key: found for key, found in wanted.items() if len(set(key)) == 3}
    assert factors(grounding.with_candidates({name: texts}), name) == wanted and len(wanted) > 3


def test_a_relation_follows_from_two(triples):
    relations = {name: list(space_of(triples[0], name).pairs.relations.values()) for name in TRIPLES}
    a, any_, d = KeyRelation.ASCENDING, KeyRelation.ANY, KeyRelation.DISTINCT
    assert relations == {"three": [a, a, a], "through": [any_] * 3, "mixed": [d, any_, any_], "loose": [d, a, d]}


def test_triples_grow_from_pairs_of_the_same_literals(triples):
    """In whatever order and under whatever names these are declared, and from no others."""
    grounding, _ = triples
    names = [s.pairs.name for s in grounding.candidates]
    for name, wanted in {
        # `near` pairs traits of two nations; it is symmetric but for which of the two comes first.
        "three": {("traits", at) for at in ((0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1))},
        "through": {("subject", (0, 1)), ("near", (1, 2)), ("near", (2, 1)), ("cross", (2, 0))},
        "mixed": {("unlike", (0, 1)), ("near", (0, 2)), ("near", (2, 0))},
    }.items():
        parents = space_of(grounding, name).pairs.parents
        assert {(names[p.space], p.places) for p in parents} == wanted
        assert len(parents) == len(wanted)


def test_chosen_pairs_become_composites_of_the_same_keys(triples):
    grounding, _ = triples
    three, pairs = space_of(grounding, "three"), space_of(grounding, "traits")
    chosen = [np.empty((0, 2), dtype=np.int64) for _ in grounding.candidates]
    number = [s.pairs.name for s in grounding.candidates].index("traits")
    chosen[number], _ = pairs.found([("big", "wet"), ("old", "wet")])
    for left_out in range(3):
        one, other = (three.spelt(k) for k in range(3) if k != left_out)
        grown = three.pairs.grown(left_out, chosen)
        texts = [(*one[a], *other[b]) for a, b in grown]
        assert sorted(texts) == [("big", "wet"), ("old", "wet")]
        third = [text for (text,) in three.spelt(left_out)]
        for (a, b), (after, before, *skipped) in zip(texts, three.pairs.limits(left_out, grown), strict=True):
            left = [t for k, t in enumerate(third) if after < k < before and k not in skipped]
            triples = [sorted((a, b, t)) for t in third]
            places = {0: (1, 2), 1: (0, 2), 2: (0, 1)}[left_out]
            wanted = [t for t, u in zip(third, triples, strict=True) if (u[places[0]], u[places[1]]) == (a, b)]
            assert left == [t for t in wanted if t not in (a, b)]


THREE = "c(n: Nation, m: Nation, s: Trait, t: Trait, u: Trait)"


@pytest.mark.parametrize(
    ("line", "code", "why"),
    [
        (
            "c(n: Nation, s: Trait, t: Trait, v: Verb, w: Verb)"
            " over trait(n, s) and trait(n, t) and verb(n, n, v) and verb(n, n, w) per s, t, v, w",
            "E391",
            "joins 4 literals",
        ),
        (f"{THREE} over trait(n, s) and trait(n, t) and trait(m, u) per s, t", "E391", "one of the three has no key"),
        (f"{THREE} where s <= t over trait(n, s) and trait(n, t) and trait(m, u) per s, t, u", "E391", "not a supported condition"),
        (
            "c(n: Nation, m: Nation, t: Trait, v: Verb, w: Verb)"
            " where v < w over verb(n, m, v) and verb(m, n, w) and trait(m, t) per v, w, t",
            "E393",
            r"no two literals of the triples[\s\S]*such as verb\(n, m, v\) and verb\(m, n, w\)",
        ),
    ],
)
def test_what_are_no_triples(line, code, why):
    text = (
        TEXT.split("candidates ")[0]
        + "candidates only(n: Nation, m: Nation, s: Trait, t: Trait) over trait(n, s) and trait(m, t) per s, t\n"
    )
    grounding = relcrf.parse(f"{text}candidates {line}\n").ground(relcrf.Dataset(traits_world()))
    with pytest.raises(UsageError, match=rf"{code}[\s\S]*{why}"):
        _ = grounding.candidates
