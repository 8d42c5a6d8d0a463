"""Candidate spaces: chosen candidates have the factors of the same declaration as a template."""

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
    """Return the factors of a template by key: variables, and the truth of the literals in each joint state."""
    info = next(t for t in grounding.templates if t.name == name)
    factors_by_key = {}
    for group in grounding.groups(name):
        key = group.features.block_of(slice(0, group.n_factors))
        scope = [np.asarray(slot) for slot in group.scope]
        for k, *variables in zip(key.tolist(), *(slot.tolist() for slot in scope), strict=True):
            table = group.patterns[:, 0].reshape(group.cardinalities)
            # The slots of a template are in the order of its formula, like the sides of a candidate.
            factors_by_key.setdefault(info.keys.values[k], []).append((*variables, table.tobytes()))
    return {key: sorted(found) for key, found in factors_by_key.items() if found}


@pytest.mark.parametrize("name", NAMES)
def test_every_pair_has_factors_of_template(ground, name):
    grounding, expanded = ground
    space = next(s for s in grounding.candidates if s.pairs.name == name)
    pairs = space.pairs.all_pairs()
    assert len(pairs) == space.pairs.n_pairs
    texts = space.pair_texts(pairs)
    assert len(set(texts)) == len(texts)
    assert factors(grounding.with_candidates({name: texts}), name) == factors(expanded, name)


def test_plan_counts_cells(ground):
    grounding, _ = ground
    planned = {row.name: row.cells for row in relcrf.parse(TEXT).plan(relcrf.Dataset(traits_world()))}
    stored = {space.pairs.name: sum(len(side.sample) for side in space.pairs.sides) for space in grounding.candidates}
    assert all(planned[name] >= cells > 0 for name, cells in stored.items())
    assert planned["traits"] == stored["traits"] and not planned["trait_prior"]


def test_chosen_pairs_keep_order_and_unknown_keys_keep_weights(ground):
    grounding, expanded = ground
    keys = (("rich", "aids"), ("unknown", "trades"), ("big", "visits"))
    extended = grounding.with_candidates({"subject": keys})
    assert extended.templates[-1].keys.values == keys and extended.graph.layout.blocks[-1].size == 3
    all_factors = factors(expanded, "subject")
    assert factors(extended, "subject") == {k: all_factors[k] for k in keys if k in all_factors}
    assert extended.instances("subject", 0, 2).columns["v"][0] in ("aids", "visits")


def test_sides_store_at_most_one_cell_per_key_and_sample(ground):
    grounding, _ = ground
    for space in grounding.candidates:
        for side in (space.pairs.first, space.pairs.second):
            assert len(side.sample) <= side.n_keys * space.pairs.n_samples


def test_literal_is_not_paired_with_itself():
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
        (
            "c(n: Nation, s: Trait, t: Trait) over trait(n, s) and trait(n, t) per s, t by 2",
            "cannot have features in 'by'",
        ),
        (
            "c(n: Nation, m: Nation, t: Trait, v: Verb) where Near(n, m) over trait(n, t) and n.mood == m.mood per t",
            "does not consist of one random term",
        ),
        (
            "c(n: Nation, s: Trait, t: Trait) where s <= t over trait(n, s) and trait(n, t) per s, t",
            "may refer to the same variable",
        ),
        (
            "c(n: Nation, s: Trait, t: Trait) where s == t over trait(n, s) and trait(n, t) per s, t",
            "not a supported condition",
        ),
        (
            "c(n: Nation, s: Trait, t: Trait) where s < t and s != t over trait(n, s) and trait(n, t) per s, t",
            "'s != t' is not a supported condition",
        ),
        (
            'c(n: Nation, s: Trait, t: Trait) where t != "big" over trait(n, s) and trait(n, t) per s, t',
            "may refer to the same variable",
        ),
        (
            "c(n: Nation, s: Trait, t: Trait) over trait(n, s) and trait(n, t) per s, t, n",
            "'n' is not a name in exactly one",
        ),
    ],
)
def test_invalid_pairs_of_literals_raise_e391(line, why):
    grounding = relcrf.parse(TEXT + f"candidates {line}\n").ground(relcrf.Dataset(traits_world()))
    with pytest.raises(UsageError, match=rf"E391[\s\S]*{why}"):
        _ = grounding.candidates


GRAPH = """
entity Person
domain Kind = open
predict relation knows(x: Person, y: Person, k: Kind)
predict relation likes(x: Person, y: Person)
"""
PEOPLE = {"person": {"id": ["p1", "p2", "p10", "p3"]}}
KNOWS = {
    "knows": {
        "x": ["p1", "p1", "p2", "p10", "p2"],
        "y": ["p1", "p2", "p3", "p10", "p10"],
        "k": ["kin", "kin", "ally", "ally", "boss"],
    },
    "likes": {"x": ["p1", "p2"], "y": ["p3", "p2"]},
}


@pytest.mark.parametrize(
    ("declaration", "where", "n_pairs"),
    [
        # Samples with x == y, in which both literals have the same variables, are left out.
        ("(x: Person, y: Person, k: Kind, l: Kind) {} over knows(x, y, k) and knows(y, x, l) per k, l", "x != y", 9),
        (
            "(x: Person, y: Person, k: Kind, l: Kind) {} over knows(x, y, k) and knows(y, x, l) per k, l",
            "k <= l and x != y",
            6,
        ),
        (
            "(x: Person, y: Person, k: Kind, l: Kind) {} over not knows(x, y, k) and knows(y, x, l) per l, k",
            "x != y and l >= k",
            6,
        ),
        # Keys of several names are compared by one of the names.
        (
            "(x: Person, y: Person, z: Person, k: Kind, l: Kind) {} over knows(x, y, k) and knows(x, z, l) per y, k, z, l",
            "y < z",
            6 * 9,
        ),
        (
            "(x: Person, y: Person, z: Person, k: Kind, l: Kind) {} over knows(x, y, k) and knows(x, z, l) per k, l, z, y",
            "z > y",
            6 * 9,
        ),
        (
            "(x: Person, y: Person, z: Person, k: Kind, l: Kind) {} over knows(x, y, k) and knows(x, z, l) per y, k, z, l",
            "z != y",
            12 * 9,
        ),
        (
            "(x: Person, y: Person, z: Person, k: Kind, l: Kind) {} over knows(y, x, k) and not knows(z, x, l) per y, k, z, l",
            "k < l",
            16 * 3,
        ),
        (
            "(x: Person, y: Person, z: Person, k: Kind) {} over knows(x, y, k) and likes(x, z) per y, z, k",
            "y <= z",
            10 * 3,
        ),
        (
            "(x: Person, y: Person, z: Person, k: Kind) {} over likes(x, z) and knows(x, y, k) per y, z, k",
            "z < y",
            6 * 3,
        ),
    ],
)
def test_compared_parts_of_keys_have_factors_of_template(declaration, where, n_pairs):
    data = relcrf.Dataset(PEOPLE | KNOWS)
    own = where.replace("x != y", "").removesuffix(" and ").removeprefix(" and ")
    text = GRAPH + "candidates c" + declaration.format(f"where {own}" if own else "")
    (space,) = relcrf.parse(text).ground(data).candidates
    expanded = relcrf.parse(GRAPH + "template c" + declaration.format(f"where {where}")).ground(data)
    texts = space.pair_texts(space.pairs.all_pairs())
    assert len(set(texts)) == len(texts) == space.pairs.n_pairs == n_pairs
    found = factors(relcrf.parse(text).ground(data).with_candidates({"c": texts}), "c")
    assert found == factors(expanded, "c") and len(found) == n_pairs


@pytest.fixture(scope="module")
def triples():
    data = relcrf.Dataset(traits_world())
    expanded = WITH_TRIPLES.replace("candidates ", "template ")
    return relcrf.parse(WITH_TRIPLES).ground(data), relcrf.parse(expanded).ground(data)


def find_space(grounding, name):
    return next(s for s in grounding.candidates if s.pairs.name == name)


def all_triples(space):
    """Return all keys that the relations of a space allow, shape (n, 3)."""
    keys = np.array(list(product(*(range(side.n_keys) for side in space.sides))))
    allowed = [relation.allows(keys[:, i], keys[:, j]) for (i, j), relation in space.relations.items()]
    return keys[np.all(allowed, axis=0)]


@pytest.mark.parametrize("name", TRIPLES)
def test_every_triple_has_factors_of_template(triples, name):
    grounding, expanded = triples
    space = find_space(grounding, name)
    keys = all_triples(space.pairs)
    pairs = space.pairs.encode_keys(keys)
    np.testing.assert_array_equal(space.pairs.decode_keys(pairs), keys)
    texts = space.pair_texts(pairs)
    assert len(set(texts)) == len(texts) and len(texts[0]) == 3
    found_pairs, indices = space.find_pairs(texts)
    np.testing.assert_array_equal(found_pairs, pairs)
    assert len(indices) == len(texts)
    expected = factors(expanded, name)
    if name == "loose":  # a template may contain a variable twice, a candidate may not
        expected = {key: found for key, found in expected.items() if len(set(key)) == 3}
    assert factors(grounding.with_candidates({name: texts}), name) == expected and len(expected) > 3


def test_key_relations_of_triples(triples):
    relations = {name: list(find_space(triples[0], name).pairs.relations.values()) for name in TRIPLES}
    a, any_, d = KeyRelation.ASCENDING, KeyRelation.ANY, KeyRelation.DISTINCT
    assert relations == {"three": [a, a, a], "through": [any_] * 3, "mixed": [d, any_, any_], "loose": [d, a, d]}


def test_triples_grow_from_pairs_with_same_literals(triples):
    """The order and the names of the declarations do not matter."""
    grounding, _ = triples
    names = [s.pairs.name for s in grounding.candidates]
    for name, wanted in {
        # `near` pairs traits of two nations; it is symmetric except for the order of the two.
        "three": {("traits", at) for at in ((0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1))},
        "through": {("subject", (0, 1)), ("near", (1, 2)), ("near", (2, 1)), ("cross", (2, 0))},
        "mixed": {("unlike", (0, 1)), ("near", (0, 2)), ("near", (2, 0))},
    }.items():
        parents = find_space(grounding, name).pairs.parents
        assert {(names[p.space], p.positions) for p in parents} == wanted
        assert len(parents) == len(wanted)


def test_chosen_pairs_become_composites_with_same_keys(triples):
    grounding, _ = triples
    three, pairs = find_space(grounding, "three"), find_space(grounding, "traits")
    chosen = [np.empty((0, 2), dtype=np.int64) for _ in grounding.candidates]
    index = [s.pairs.name for s in grounding.candidates].index("traits")
    chosen[index], _ = pairs.find_pairs([("big", "wet"), ("old", "wet")])
    for excluded in range(3):
        one, other = (three.key_texts(k) for k in range(3) if k != excluded)
        new_pairs = three.pairs.candidate_pairs(excluded, chosen)
        texts = [(*one[a], *other[b]) for a, b in new_pairs]
        assert sorted(texts) == [("big", "wet"), ("old", "wet")]
        third = [text for (text,) in three.key_texts(excluded)]
        for (a, b), (after, before, *skipped) in zip(texts, three.pairs.key_limits(excluded, new_pairs), strict=True):
            remaining = [t for k, t in enumerate(third) if after < k < before and k not in skipped]
            triples = [sorted((a, b, t)) for t in third]
            places = {0: (1, 2), 1: (0, 2), 2: (0, 1)}[excluded]
            expected = [t for t, u in zip(third, triples, strict=True) if (u[places[0]], u[places[1]]) == (a, b)]
            assert remaining == [t for t in expected if t not in (a, b)]


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
        (
            f"{THREE} over trait(n, s) and trait(n, t) and trait(m, u) per s, t",
            "E391",
            "one of the three literals has no key",
        ),
        (
            f"{THREE} where s <= t over trait(n, s) and trait(n, t) and trait(m, u) per s, t, u",
            "E391",
            "not a supported condition",
        ),
        (
            "c(n: Nation, m: Nation, t: Trait, v: Verb, w: Verb)"
            " where v < w over verb(n, m, v) and verb(m, n, w) and trait(m, t) per v, w, t",
            "E393",
            r"no two literals of the triples[\s\S]*such as verb\(n, m, v\) and verb\(m, n, w\)",
        ),
    ],
)
def test_invalid_triples_raise_error(line, code, why):
    text = (
        TEXT.split("candidates ")[0]
        + "candidates only(n: Nation, m: Nation, s: Trait, t: Trait) over trait(n, s) and trait(m, t) per s, t\n"
    )
    grounding = relcrf.parse(f"{text}candidates {line}\n").ground(relcrf.Dataset(traits_world()))
    with pytest.raises(UsageError, match=rf"{code}[\s\S]*{why}"):
        _ = grounding.candidates


@pytest.mark.parametrize(
    "condition", ["n < m and p < o", "n < m and o < p and n < o", "n < m and n != o and Near(o, p)"]
)
def test_conditions_on_keys_of_one_literal(condition):
    data = relcrf.Dataset(traits_world(nations=5))
    parameters = "n: Nation, m: Nation, o: Nation, p: Nation, v: Verb"
    own = f"candidates own({parameters}) where {condition} over verb(n, m, v) and verb(o, p, v) per n, m, o, p\n"
    grounding = relcrf.parse(TEXT + own).ground(data)
    space = next(s for s in grounding.candidates if s.pairs.name == "own")
    texts = space.pair_texts(space.pairs.all_pairs())
    expanded = relcrf.parse(TEXT + own.replace("candidates", "template")).ground(data)
    found = factors(grounding.with_candidates({"own": texts}), "own")
    assert found and found == factors(expanded, "own")
