"""Spaces of candidates: the factors of what is chosen are those that the same text grounds into as a template."""

import numpy as np
import pytest
from traits import TEXT, traits_world

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
    pairs = space.pairs.every_pair()
    assert len(pairs) == space.pairs.n_pairs
    texts = space.texts(pairs)
    assert len(set(texts)) == len(texts)
    assert factors(grounding.with_chosen({name: texts}), name) == factors(expanded, name)


def test_some_pairs_keep_their_order_and_strangers_their_place(ground):
    grounding, expanded = ground
    keys = (("rich", "aids"), ("nowhere", "trades"), ("big", "visits"))
    placed = grounding.with_chosen({"subject": keys})
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
    assert all(a != b for a, b in space.texts(space.pairs.every_pair()))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("c(n: Nation, t: Trait) over trait(n, t) per t", "no conjunction"),
        ("c(n: Nation, s: Trait, t: Trait) over trait(n, s) or trait(n, t) per s, t", "no conjunction"),
        ("c(n: Nation, s: Trait, t: Trait) over trait(n, s) and trait(n, t) per s", "no key in 'per'"),
        ("c(n: Nation, s: Trait, t: Trait) over trait(n, s) and trait(n, t) per s, t by 2", "features in 'by'"),
        (
            "c(n: Nation, m: Nation, t: Trait, v: Verb) where Near(n, m) over trait(n, t) and n.mood == m.mood per t",
            "not one random term",
        ),
        ("c(n: Nation, s: Trait, t: Trait) where s <= t over trait(n, s) and trait(n, t) per s, t", "ties the keys"),
        ("c(n: Nation, s: Trait, t: Trait) over trait(n, s) and trait(n, t) per s, t, n", "'n' is not a name of one"),
    ],
)
def test_what_is_no_pair_of_literals(line, why):
    grounding = relcrf.parse(TEXT + f"candidates {line}\n").ground(relcrf.Dataset(traits_world()))
    with pytest.raises(UsageError, match=rf"E391[\s\S]*{why}"):
        _ = grounding.candidates
