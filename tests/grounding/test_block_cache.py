"""The block cache: no stale blocks, no repeated work, the same bytes for the same inputs, errors for damaged files."""

import json
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from generated import generated
from ground_graphs import assert_equal_groundings
from hypothesis import given
from hypothesis import strategies as st
from random_models import DECLARATIONS, frames, tables, templates
from tables import write_tables

import relcrf
from relcrf.columns.texts import StoredTexts
from relcrf.data.binding import bind
from relcrf.errors import DataError
from relcrf.files import file_lock
from relcrf.grounding.block_cache import BlockCache
from relcrf.grounding.ground import ground


def ground_with_cache(text, source, folder):
    """Return the grounding and the names of the blocks that were cache misses and hits."""
    cache = BlockCache(folder)
    grounding = ground(bind(relcrf.parse(text).spec, relcrf.Dataset(source)), cache=cache)
    return grounding, cache.misses, cache.hits


def ground_uncached(text, source):
    return ground(bind(relcrf.parse(text).spec, relcrf.Dataset(source)))


def cache_misses(expected, folder):
    """Return the names of the cache misses; assert that the grounding equals one without a cache."""
    cache = BlockCache(folder)
    assert_equal_groundings(ground(expected.bound, cache=cache), expected)
    return cache.misses


# A small model in which some templates read each kind of table and others do not

MODEL = """
domain D = { x, y }
domain K = 1..3
domain W = open
domain V = open
entity E { predict d : D  r : real  w : bag of W  v : vector }
entity F { predict f : bool  n : integer  k : K }
entity G { g : V  t : string }
relation R(a: E, b: E)
relation S(f: F, g: G) { s: real }
relation H(f: F, v: V)
predict relation P(a: F, b: F) where a != b
predict relation Q(a: F, w: W) : D
derive Reach(a: E, b: E) where R(a, b) or (Reach(a, m) and R(m, b))
derive Near(a: E, b: E) = nearest 1 by distance(a.v, b.v)
derive Tied(a: F, b: F) where S(a, g) and S(b, g) and a < b

template prior(e: E) over e.d
template words(e: E) over e.d by e.w
template weighed(e: E, u: W) where u in e.w over e.d per u by 1, e.r
template linked(a: E, b: E) where R(a, b) over a.d, b.d
template reached(a: E, b: E) where Reach(a, b) over a.d == b.d
template near(a: E, b: E) where Near(a, b) over symmetric a.d, b.d
template either(a: E, b: E) where (R(a, b) or R(b, a)) and a < b over a.d == b.d
template ties(f: F, g: G) where S(f, g) over f.f per g.g by S(f, g).s
template tied(a: F, b: F) where Tied(a, b) over a.f == b.f per a.n, b.n
template held(f: F, v: V) where H(f, v) over f.f per v
template pairs(a: F, b: F) over P(a, b) and P(b, a)
template of_word(a: F, w: W) over Q(a, w), a.f per w
rule hard: P(a, b) => P(b, a)
rule: P(a, b) and a.k == 1 => b.f
"""
TEMPLATES_OF_E = {"prior", "words", "weighed", "linked", "reached", "near", "either"}
TEMPLATES_OF_F = {"ties", "tied", "held", "pairs", "of_word", "rule 1", "rule 2"}
ALL = TEMPLATES_OF_E | TEMPLATES_OF_F


def small_tables():
    return {
        "e": [{"id": k, "d": "xy"[k % 2], "r": k / 3, "v_0": k * k, "v_1": -k} for k in range(6)],
        "e_w": [{"e": k, "word": f"w{k % 3}", "count": 1 + k} for k in range(5)],
        "f": [{"id": f"f{k}", "f": k % 2 == 0, "n": k % 2, "k": 1 + k % 3} for k in range(4)],
        "g": [{"id": f"g{k}", "g": f"v{k % 2}", "t": "t"} for k in range(3)],
        "r": [{"a": k, "b": k + 1} for k in range(4)],
        "s": [{"f": f"f{k}", "g": f"g{k % 2}", "s": 0.5 * k} for k in range(4)],
        "h": [{"f": "f0", "v": "v0"}, {"f": "f1", "v": "v1"}],
        "p": [{"a": "f0", "b": "f1", "value": True}],
        "q": [{"a": "f0", "w": "w0", "value": "x"}],
    }


def as_frames(rows):
    return {name: pd.DataFrame(table) for name, table in rows.items()}


def as_files(rows, folder):
    shutil.rmtree(folder, ignore_errors=True)
    return write_tables(folder, **rows)


def with_lists(rows):
    """Return the tables with the bag as a column of lists."""
    found = as_frames({name: table for name, table in rows.items() if name != "e_w"})
    words = {row["e"]: [] for row in rows["e_w"]}
    for row in rows["e_w"]:
        words[row["e"]] += [row["word"]] * row["count"]
    found["e"]["w"] = [words.get(k, []) for k in found["e"]["id"]]
    return found


def test_blocks_are_grounded_once(tmp_path):
    rows = small_tables()
    expected = ground_uncached(MODEL, as_frames(rows))
    first, misses, hits = ground_with_cache(MODEL, as_frames(rows), tmp_path / "cache")
    assert (set(misses), hits) == (ALL, [])
    second, misses, hits = ground_with_cache(MODEL, as_frames(rows), tmp_path / "cache")
    assert (misses, set(hits)) == ([], ALL)
    for grounding in (first, second):
        assert_equal_groundings(grounding, expected)
    as_lists = ground_uncached(MODEL, with_lists(rows))
    third, misses, _ = ground_with_cache(MODEL, with_lists(rows), tmp_path / "cache")
    assert set(misses) == TEMPLATES_OF_E, "the bag comes from a different table"
    assert_equal_groundings(third, as_lists)
    for a, b in zip(third.graph.groups, first.graph.groups, strict=True):
        assert [x.tobytes() for x in a.features.arrays()] == [x.tobytes() for x in b.features.arrays()]


CHANGES = {
    "an evidence value": (lambda t: t["e"][0].update(r=9.0), TEMPLATES_OF_E),
    "a label": (lambda t: t["e"][0].update(d="y"), TEMPLATES_OF_E),
    "a label removed": (lambda t: t["f"][0].update(f=None), TEMPLATES_OF_F),
    "a vector": (lambda t: t["e"][5].update(v_0=0.1), TEMPLATES_OF_E),
    "an added entity": (lambda t: t["e"].append({"id": 99, "d": "x", "r": 1, "v_0": 0, "v_1": 0}), ALL),
    "an added last entity": (lambda t: t["f"].append({"id": "f9", "f": True, "n": 1, "k": 2}), TEMPLATES_OF_F),
    "a removed entity": (lambda t: t["g"].pop(), {"ties", "tied"}),
    "a count": (lambda t: t["e_w"][0].update(count=7), {"words", "weighed"}),
    "a known word": (lambda t: t["e_w"].append({"e": 5, "word": "w0", "count": 1}), {"words", "weighed"}),
    "a new word": (lambda t: t["e_w"].append({"e": 5, "word": "w9", "count": 1}), {"words", "weighed", "of_word"}),
    "a link": (lambda t: t["r"].append({"a": 5, "b": 0}), {"linked", "reached", "either"}),
    "a score": (lambda t: t["s"][0].update(s=-1.0), {"ties", "tied"}),
    "a tie": (lambda t: t["s"].append({"f": "f3", "g": "g0", "s": 1.0}), {"ties", "tied"}),
    "a key's value": (lambda t: t["g"][0].update(g="v1"), {"ties", "tied"}),
    "a new key": (lambda t: t["g"][0].update(g="v9"), {"ties", "tied", "held"}),
    "a tuple of a value": (lambda t: t["h"].append({"f": "f2", "v": "v0"}), {"held"}),
    "a listed tuple": (lambda t: t["p"].append({"a": "f1", "b": "f2", "value": False}), {"pairs", "rule 1", "rule 2"}),
    "a listed value": (lambda t: t["q"][0].update(value="y"), {"of_word"}),
    "a listed word": (lambda t: t["q"][0].update(w="w8"), {"words", "weighed", "of_word"}),
    "a range's value": (lambda t: t["f"][1].update(k=1), TEMPLATES_OF_F),
    "an unread column": (lambda t: [row.update(more=1) for row in t["g"]], {"ties", "tied"}),
    "nothing": (lambda t: None, set()),
}


@pytest.fixture(scope="module")
def caches(tmp_path_factory):
    """Return a folder with two caches of the model: for tables as frames, and for tables as files."""
    folder = tmp_path_factory.mktemp("cache")
    ground_with_cache(MODEL, as_frames(small_tables()), folder / "frames")
    ground_with_cache(MODEL, as_files(small_tables(), folder / "data"), folder / "files")
    return folder


@pytest.mark.parametrize(("change", "kind"), [(c, "files" if k % 2 else "frames") for k, c in enumerate(CHANGES)])
def test_changed_table_invalidates_dependent_blocks_only(tmp_path, caches, change, kind):
    apply, expected = CHANGES[change]
    rows = small_tables()
    apply(rows)
    source = as_frames(rows) if kind == "frames" else as_files(rows, tmp_path / "data")
    shutil.copytree(caches / kind, tmp_path / "cache")
    # Blocks also depend on the values of their domains and on the positions of their variables.
    assert set(cache_misses(ground_uncached(MODEL, source), tmp_path / "cache")) == expected


REWRITTEN = {
    "a template's where": ("where R(a, b) over a.d, b.d", "where R(b, a) over a.d, b.d", {"linked"}),
    "a template's options": ("template prior(e: E) over e.d", "template prior(e: E) over e.d l2 3.0", {"prior"}),
    "a rule's weight": ("rule: P(a, b) and", "rule 0.5: P(a, b) and", {"rule 2"}),
    "a hard rule": ("rule hard:", "rule:", {"rule 1"}),
    "a derived relation": ("or (Reach(a, m) and R(m, b))", "or (R(a, m) and R(m, b))", {"reached"}),
    "neighbours": ("nearest 1 by", "nearest 2 by", {"near"}),
    "a measure": ("distance(a.v, b.v)", "dot(a.v, b.v)", {"near"}),
    "a random relation's where": ("where a != b\n", "where a < b\n", {"pairs", "of_word", "rule 1", "rule 2"}),
    "a disjunction": ("(R(a, b) or R(b, a)) and a < b", "(R(a, b) or R(b, a)) and a != b", {"either"}),
    "the order of states": ("{ x, y }", "{ y, x }", TEMPLATES_OF_E | {"of_word"}),
    "a range": ("K = 1..3", "K = 0..3", {"rule 2"}),
}


@pytest.mark.parametrize("change", REWRITTEN)
def test_changed_declaration_invalidates_dependent_blocks_only(tmp_path, caches, change):
    old, new, expected = REWRITTEN[change]
    assert old in MODEL
    shutil.copytree(caches / "frames", tmp_path / "cache")
    expected_grounding = ground_uncached(MODEL.replace(old, new), as_frames(small_tables()))
    assert set(cache_misses(expected_grounding, tmp_path / "cache")) == expected


# Random changes

DECLARATION_EDITS = [
    ("D = { x, y, z }", "D = { z, y, x }"), ("C = { red, blue }", "C = { blue, red }"), ("k : 1..3", "k : 0..3"),
    ("l : 1..2", "l : 1..3"), ("where a != b\n", "where a < b\n"), ("where exists { R(a, b) }", ""),
    ("and a < b\n", "\n"), ("and not R(a, b)\n", "\n"), ("Reach(a, m) and R(m, b)", "Reach(a, m) and R(b, m)"),
    ("R(a, m) and Even(m, b)", "R(m, a) and Even(m, b)"), (">= 2", ">= 1"), ("and a != b }", "}"), ("w in a.w or ", ""),
    ("entity F { predict d : D", "entity F { d : D  predict x : D"),
    ("predict relation U(a: E, w: W)", "predict relation U(a: E, w: W) where w in a.w"),
]  # fmt: skip


@st.composite
def changes(draw):
    """Generate a function that changes the tables of random_models.py."""
    kind = draw(st.sampled_from(["cell", "cell", "cell", "word", "thing", "pair", "tie", "colour", "listed", "all"]))
    other = draw(tables())
    place = draw(st.integers(0, 20))

    def apply(data):
        things, pairs, ties, colours, listed = data
        things = {sort: {key: dict(row) for key, row in known.items()} for sort, known in things.items()}
        keys = list(things["E"])
        key = keys[place % len(keys)]
        donor = next(iter(other[0]["E"].values()))
        if kind == "cell":
            name = "dcokrqnts"[place % 9]
            things["E"][key][name] = donor[name]
        elif kind == "word":
            things["E"][key]["w"] = donor["w"]
        elif kind == "thing":
            things["F"]["h"] = {"d": "x", "r": 1.0}
        elif kind == "pair":
            pairs = [p for p in pairs if p != (key, key)] if (key, key) in pairs else [*pairs, (key, keys[0])]
        elif kind == "tie":
            ties = {**ties, (key, "f"): 3.5}
        elif kind == "colour":
            colours = [*colours, (key, "red")] if (key, "red") not in colours else [c for c in colours if c[0] != key]
        elif kind == "listed":
            table = {(key, "new"): True} if place % 2 else {(key, "u"): False, (key, "brand new"): None}
            listed = {**listed, "U": table, "P": {(key, keys[0]): True}, "T": {(key,): True}}
        else:
            return other
        return things, pairs, ties, colours, listed

    return apply


@generated(4)
@given(
    tables(),
    st.lists(templates(), min_size=2, max_size=5),
    st.lists(st.one_of(changes(), st.sampled_from(DECLARATION_EDITS)), min_size=3, max_size=5),
)
def test_no_block_is_stale_after_random_changes(tmp_path_factory, data, bodies, steps):
    """Change tables and declarations at random, and compare groundings with and without the cache."""
    folder = tmp_path_factory.mktemp("cache")
    texts = dict.fromkeys(text.replace("NAME", f"t{k}") for k, one in enumerate(bodies) for text in one)
    text = DECLARATIONS + "\n".join(texts)
    for step in [None, *steps]:
        if callable(step):
            data = step(data)
        elif step is not None:
            text = text.replace(*step)
        try:
            expected = ground_uncached(text, frames(*data))
        except (relcrf.errors.ModelError, DataError):
            continue  # not every change gives a valid model
        cache_misses(expected, folder)


MANIFEST = """
[tables.e]
file = "e.csv"
[tables.r]
file = "{r}.csv"
[tables.s]
file = "{s}.csv"
"""


def test_values_that_are_not_held_in_memory_are_cached(tmp_path, monkeypatch):
    """The values of a domain with more than 100,000 values are not a tuple."""
    rows = small_tables()
    assert set(ground_with_cache(MODEL, as_frames(rows), tmp_path)[1]) == ALL
    monkeypatch.setattr("relcrf.columns.texts.MAX_HELD_TEXTS", 2)
    grounding = ground_uncached(MODEL, as_frames(rows))
    assert isinstance(grounding.bound.domains["W"], StoredTexts)
    assert cache_misses(grounding, tmp_path) == [], "the storage of the values is not an input of a block"


def test_swapped_tables_invalidate_block(tmp_path):
    text = """
    domain D = { x, y } entity E { predict d : D } relation R(a: E, b: E) relation S(a: E, b: E)
    template t(a: E, b: E) where R(a, b) and not S(a, b) over a.d, b.d
    """
    write_tables(tmp_path, e=[{"id": k, "d": "x"} for k in range(4)], one=[{"a": 0, "b": 1}], two=[{"a": 2, "b": 3}])
    for r, s in (("one", "two"), ("two", "one")):
        (tmp_path / "dataset.toml").write_text(MANIFEST.format(r=r, s=s))
        found, misses, _ = ground_with_cache(text, tmp_path, tmp_path / "cache")
        assert misses == ["t"]
        assert_equal_groundings(found, ground_uncached(text, tmp_path))


def test_equal_values_of_different_types_have_different_hashes(tmp_path):
    """DuckDB computes the same hash for true and 1."""
    text = "domain D = { x, y } entity E { predict d : D  s : string }\ntemplate t(e: E) over e.d per e.s"
    for values in ([True, True], [1, 1]):
        source = {"e": pd.DataFrame({"id": [1, 2], "d": ["x", "y"], "s": values})}
        found, _, _ = ground_with_cache(text, source, tmp_path)
        assert_equal_groundings(found, ground_uncached(text, source))


def test_table_changed_after_dataset_was_opened_is_read_again(tmp_path):
    text = "domain D = { x, y } entity E { predict d : D  r : real }\ntemplate t(e: E) over e.d by e.r"
    rows = {"e": [{"id": 1, "d": "x", "r": 1.0}]}
    dataset, cache = relcrf.Dataset(write_tables(tmp_path / "data", **rows)), BlockCache(tmp_path / "cache")
    spec = relcrf.parse(text).spec
    for value in (1.0, 2.0):
        rows["e"][0]["r"] = value
        write_tables(tmp_path / "data", **rows)
        (group,) = ground(bind(spec, dataset), cache=cache).graph.groups
        assert group.features.values.tolist() == [[value]]


ONE_TEMPLATE = "domain D = { x, y } entity E { predict d : D  r : real }\ntemplate t(e: E) over e.d by e.r"


def one_table(folder, value, by_another_name=False):
    write_tables(folder, e=[{"id": 1, "d": "x", "r": value}])
    if by_another_name:
        (folder / "dataset.toml").write_text('[tables.e]\nfile = "e.csv"\n[tables.e.columns]\nr = "r"\n')
    return folder


@pytest.mark.parametrize("by_another_name", [False, True])
@pytest.mark.parametrize("replaced", [False, True])
def test_table_changed_during_reading_is_not_cached(tmp_path, by_another_name, replaced):
    bound = bind(relcrf.parse(ONE_TEMPLATE).spec, relcrf.Dataset(one_table(tmp_path / "data", 1.0, by_another_name)))
    if replaced:  # replace it by a file of the same size and modification time
        times = (tmp_path / "data" / "e.csv").stat()
        (tmp_path / "data" / "e.csv").rename(tmp_path / "before.csv")
    one_table(tmp_path / "data", 2.0)
    if replaced:
        os.utime(tmp_path / "data" / "e.csv", ns=(times.st_atime_ns, times.st_mtime_ns))
    cache = BlockCache(tmp_path / "cache")
    (group,) = ground(bound, cache=cache).graph.groups
    assert (group.features.values.tolist(), cache.misses, list(cache.folder.iterdir())) == ([[1.0]], [], [])
    assert any("e.csv changed after" in note for note in bound.notes)
    for expected in (["t"], []):
        found, misses, _ = ground_with_cache(ONE_TEMPLATE, tmp_path / "data", tmp_path / "cache")
        assert (found.graph.groups[0].features.values.tolist(), misses) == ([[2.0]], expected)


def test_table_changed_to_cached_content_does_not_hit(tmp_path):
    ground_with_cache(ONE_TEMPLATE, one_table(tmp_path / "data", 2.0), tmp_path / "cache")
    bound = bind(relcrf.parse(ONE_TEMPLATE).spec, relcrf.Dataset(one_table(tmp_path / "data", 1.0)))
    one_table(tmp_path / "data", 2.0)
    cache = BlockCache(tmp_path / "cache")
    (group,) = ground(bound, cache=cache).graph.groups
    assert (group.features.values.tolist(), cache.hits) == ([[1.0]], [])


def test_vocabulary_of_trained_model_has_separate_blocks(tmp_path):
    text = "domain W = open entity E { predict d : W  w : bag of W }\ntemplate t(e: E) over e.d by e.w"
    source = {"e": pd.DataFrame({"id": [1], "d": ["b"]}), "e_w": pd.DataFrame({"e": [1, 1], "w": ["a", "b"]})}
    spec = relcrf.parse(text).spec
    for vocabulary in (None, {"W": ("b", "a")}, {"W": ("c",)}):
        found = ground(bind(spec, relcrf.Dataset(source), vocabulary), cache=BlockCache(tmp_path))
        assert_equal_groundings(found, ground(bind(spec, relcrf.Dataset(source), vocabulary)))


# Reproducible bytes


def folder_bytes(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def large_tables(order):
    rng = np.random.default_rng(0)
    n, m = 3000, 200_000
    word = pd.DataFrame({"e": rng.integers(n, size=m), "w": rng.integers(500, size=m), "count": rng.random(m)})
    link = pd.DataFrame({"a": rng.integers(n, size=m), "b": rng.integers(n, size=m)})
    thing = pd.DataFrame({"id": np.arange(n), "d": rng.choice(["x", "y"], size=n), "r": rng.normal(size=n)})
    group = pd.DataFrame({"id": np.arange(30), "k": rng.normal(size=30)})
    of = pd.DataFrame({"a": np.arange(n), "g": rng.integers(30, size=n), "s": rng.normal(size=n)})
    tables = {"e": thing, "e_w": word, "r": link, "g": group, "of": of}
    return {name: t.sample(frac=1, random_state=order) if order else t for name, t in tables.items()}


LARGE = """
domain D = { x, y }
domain W = open
entity E { predict d : D  r : real  w : bag of W }
entity G { predict l : bool }
relation R(a: E, b: E)
relation Of(a: E, g: G) { s: real }
derive Reach(g: G, h: G) where Of(a, g) and R(a, b) and Of(b, h)
template words(e: E) over e.d by e.w
template some(e: E, u: W) where u in e.w and e.r > 0 over e.d per u by 1, e.r
template pair(a: E, b: E) where R(a, b) over a.d, b.d by 1, a.r * b.r
template near(a: E) where R(a, b) over a.d by 1, a.r
template sums(a: E) over a.d by sum { q.r where R(q, a) }, count { q where R(a, q) }
template means(g: G) over g.l by mean { q.r where Of(q, g) }, sum { Of(q, g).s where Of(q, g) }
template added(g: G, a: E) where Of(a, g) over g.l by a.r, Of(a, g).s
template reached(g: G, h: G) where Reach(g, h) over g.l == h.l
"""


def test_bytes_do_not_depend_on_row_order_and_threads(tmp_path):
    found = []
    for k, (threads, order) in enumerate([(1, 0), (4, 1), (4, 2)]):
        dataset = relcrf.Dataset(large_tables(order))
        dataset.connection.execute(f"SET threads = {threads}")
        cache = BlockCache(tmp_path / str(k))
        ground(bind(relcrf.parse(LARGE).spec, dataset), cache=cache)
        found.append(folder_bytes(tmp_path / str(k)))
    for other in found[1:]:
        assert list(other) == list(found[0])
        differing = {name for name in other if other[name] != found[0][name]}
        assert differing == set()


def test_relative_and_linked_folders_have_same_content(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ground_with_cache(TINY, tiny_tables(), tmp_path / "one")
    (tmp_path / "real").mkdir()
    os.symlink(tmp_path / "real", tmp_path / "linked")
    for folder in (type(tmp_path)("two"), tmp_path / "linked" / "three"):
        ground_with_cache(TINY, tiny_tables(), folder)
        assert folder_bytes(folder) == folder_bytes(tmp_path / "one")


# Damaged files

TINY = "domain D = { x, y } domain W = open entity E { predict d : D  r : real  w : bag of W }\n" + "\n".join(
    [
        "template words(e: E) over e.d by e.w",
        "template pair(a: E, b: E) over symmetric a.d, b.d by a.r, b.r",
        "template one(e: E) over e.d by e.r",
    ]
)


def tiny_tables():
    return {
        "e": pd.DataFrame({"id": [1, 2, 3], "d": ["x", "y", None], "r": [1.0, 2.0, 3.0]}),
        "e_w": pd.DataFrame({"e": [1, 1, 2], "w": ["a", "b", "b"], "count": [1, 2, 3]}),
    }


def damages(path):
    """Yield functions that damage a file in different ways."""
    data = path.read_bytes()
    yield lambda: path.unlink()
    yield lambda: path.write_bytes(data[: len(data) // 2])
    yield lambda: path.write_bytes(data + b"\0")
    yield lambda: path.write_bytes(b"")
    if path.suffix == ".npy":
        array = np.load(path)
        yield lambda: np.save(path, array[:-1])
        yield lambda: np.save(path, np.concatenate([array, array[:1]]))
        if "scope" in path.name:
            yield lambda: np.save(path, array.astype(np.float64))
        yield lambda: np.save(path, np.array([{}] * len(array), dtype=object), allow_pickle=True)


def test_damaged_files_raise_e227_with_folder(tmp_path):
    ground_with_cache(TINY, tiny_tables(), tmp_path)
    whole = folder_bytes(tmp_path)
    bound = bind(relcrf.parse(TINY).spec, relcrf.Dataset(tiny_tables()))
    tried = 0
    for name in whole:
        for k in range(len(list(damages(tmp_path / name)))):
            list(damages(tmp_path / name))[k]()
            with pytest.raises(DataError) as caught:
                ground(bound, cache=BlockCache(tmp_path))
            (diagnostic,) = caught.value.diagnostics
            assert diagnostic.code == "E227"
            folder = tmp_path / name.split("/")[0]
            assert str(folder) in diagnostic.message
            (tmp_path / name).write_bytes(whole[name])
            tried += 1
    assert tried > 60
    _, misses, _ = ground_with_cache(TINY, tiny_tables(), tmp_path)
    assert misses == []
    shutil.rmtree(folder)
    _, misses, _ = ground_with_cache(TINY, tiny_tables(), tmp_path)
    assert len(misses) == 1, "removing the folder, as in the hint, repairs the cache"


@pytest.mark.parametrize(
    "edit",
    [
        lambda facts: facts.pop("groups"),
        lambda facts: facts["groups"][0].update(features={"kind": "other"}),
        lambda facts: facts["groups"][0].update(scope=["../secret.npy"]),
        lambda facts: facts["groups"][0].update(scope=["/etc/passwd"]),
        lambda facts: facts["groups"][0].update(scope=[".npy"]),
        lambda facts: facts["groups"][0].update(cardinalities=[3]),
        lambda facts: facts["weights"].update(n_patterns=5),
        lambda facts: facts["weights"].update(unknown=5),
        lambda facts: facts.update(info=[]),
    ],
)
def test_invalid_description_raises_e227(tmp_path, edit):
    ground_with_cache(TINY, tiny_tables(), tmp_path)
    for path in tmp_path.glob("*/block.json"):
        facts = json.loads(path.read_text())
        if facts["info"]["name"] == "one":
            edit(facts)
            path.write_text(json.dumps(facts))
    with pytest.raises(DataError, match="E227"):
        ground_with_cache(TINY, tiny_tables(), tmp_path)


def test_failed_grounding_leaves_no_partial_block(tmp_path):
    text = TINY + "\ntemplate wild(e: E) over e.d by exp(1000 * e.r)"
    with pytest.raises(DataError, match="is infinite or above"):
        ground_with_cache(text, tiny_tables(), tmp_path)
    assert [p for p in tmp_path.iterdir() if p.name.startswith(".")] == []
    _, misses, hits = ground_with_cache(TINY, tiny_tables(), tmp_path)
    assert (misses, len(hits)) == ([], 3), "complete blocks remain cached"


KILLED = """
import os, signal, sys
from pathlib import Path
import relcrf
from relcrf.columns import storage
from relcrf.columns.texts import StoredTexts
from relcrf.data.binding import bind
from relcrf.grounding.ground import ground
from relcrf.grounding.block_cache import BlockCache

finish = storage.ColumnBuilder.finish
def finish_or_die(column):
    global left
    if "cache" in str(column._path):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    return finish(column)

storage.ColumnBuilder.finish = finish_or_die
spec = relcrf.load(sys.argv[1]).spec
for columns in sys.argv[3:]:
    child = os.fork()
    if not child:
        left = int(columns)
        ground(bind(spec, relcrf.Dataset(sys.argv[2])), cache=BlockCache(Path(sys.argv[2]) / f"cache{columns}"))
        os._exit(0)
    print(os.WTERMSIG(os.waitpid(child, 0)[1]))
"""


def test_partial_blocks_of_killed_processes_are_removed(tmp_path):
    (tmp_path / "m.rcrf").write_text(TINY)
    for name, table in tiny_tables().items():
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    expected = ground_uncached(TINY, tmp_path)
    command = [sys.executable, "-c", KILLED, str(tmp_path / "m.rcrf"), str(tmp_path), "1", "5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.stdout.split() == [str(signal.SIGKILL.value)] * 2, done.stderr
    for columns in (1, 5):
        folder = tmp_path / f"cache{columns}"
        assert [p for p in folder.iterdir() if p.name.startswith(".")] != []
        (folder / ".git").mkdir()
        found, _, _ = ground_with_cache(TINY, tmp_path, folder)
        assert [p.name for p in folder.iterdir() if p.name.startswith(".")] == [".git"]
        assert_equal_groundings(found, expected)


def test_stale_locks_are_removed(tmp_path):
    name = f".{'a' * 32}.x"
    for left in (".lock", f"{name}1.lock", f"{name}2.lock"):
        (tmp_path / left).touch()
    (tmp_path / f"{name}2").mkdir()
    with file_lock(tmp_path / f"{name}3.lock"):
        (tmp_path / f"{name}3").mkdir()
        BlockCache(tmp_path)
        assert {path.name for path in tmp_path.iterdir()} == {f"{name}3", f"{name}3.lock"}
    BlockCache(tmp_path)
    assert not list(tmp_path.iterdir())


def test_other_files_with_names_of_partial_blocks_remain(tmp_path):
    name = f".{'0' * 32}."
    os.mkfifo(tmp_path / f"{name}fifo")
    (tmp_path / f"{name}file").write_text("mine")
    (tmp_path / "mine").mkdir()
    (tmp_path / f"{name}link").symlink_to(tmp_path / "mine")
    (tmp_path / f"{name}folder").mkdir()
    BlockCache(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"{name}fifo", f"{name}file", f"{name}link", "mine"]


def test_concurrent_groundings_share_cache(tmp_path):
    first = BlockCache(tmp_path)
    spec = relcrf.parse(TINY).spec
    inner = []

    def progress(text):
        if not inner:  # during the first block of the outer grounding, the inner one grounds all blocks
            inner.append(ground_with_cache(TINY, tiny_tables(), tmp_path))

    outer = ground(bind(spec, relcrf.Dataset(tiny_tables())), progress=progress, cache=first)
    assert_equal_groundings(outer, inner[0][0])
    assert [p for p in tmp_path.iterdir() if p.name.startswith(".")] == []
    assert len(list(tmp_path.iterdir())) == 3
