"""Groundings with columns in files: bitwise equal to those in memory, with the same learned weights."""

import numpy as np
import pandas as pd
import pytest
from generated import generated
from ground_graphs import assert_equal_groundings
from hypothesis import given
from hypothesis import strategies as st
from random_models import DATA, DECLARATIONS, KINDS, PARTS, frames, tables, templates
from tables import small_web

import relcrf
from relcrf import api
from relcrf.columns import bucket_sort
from relcrf.columns.storage import find_mapped_file
from relcrf.data.binding import bind
from relcrf.graph.factor_graph import RepeatedScope
from relcrf.grounding.ground import ground
from relcrf.resources import resource_path

LITTLE, MUCH = "160MB", "4GB"


def dataset_in_files(source):
    """Return a dataset that stores all columns in files, even short ones."""
    dataset = relcrf.Dataset(source, memory=LITTLE)
    dataset.storage.max_bytes = 0
    return dataset


def columns_of(grounding):
    """Yield the long columns of a graph: scopes and features."""
    for group in grounding.graph.groups:
        scope = group.scope
        yield from scope.offsets if isinstance(scope, RepeatedScope) else scope
        yield from group.features.arrays()


def compare(text, source):
    spec = relcrf.parse(text).spec
    dataset = dataset_in_files(source)
    found = ground(bind(spec, dataset), 10**7)
    expected = ground(bind(spec, relcrf.Dataset(source, memory=MUCH)), 10**7)
    assert_equal_groundings(found, expected)
    assert dataset.storage.used_bytes == 0
    return found, expected


@generated(6)
@given(
    tables(),
    st.lists(templates(), min_size=3, max_size=7),
    st.sampled_from([1, 1 << 18]),
    st.sampled_from([1, 1 << 18]),
)
def test_random_groundings_in_files_equal_memory(data, bodies, bucket, batch):
    texts = dict.fromkeys(text.replace("NAME", f"t{k}") for k, one in enumerate(bodies) for text in one)
    if not any(row["w"] or row["q"] for row in data[0]["E"].values()) and not data[-1]["U"]:
        return  # the open domain has no values
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bucket_sort, "BUCKET_ROWS", bucket)
        patch.setattr(bucket_sort, "BATCH_ROWS", batch)
        compare(DECLARATIONS + "\n".join(texts), frames(*data))


@pytest.mark.parametrize("part", PARTS)
def test_language_constructs_in_files_equal_memory(part):
    compare(DECLARATIONS + "\n".join(PARTS[part]), frames(*DATA[0]))


LARGE = """
domain D = { x, y, z }
domain W = open
entity E { predict d : D  g : integer  r : real  w : bag of W }
relation R(a: E, b: E)
template words(e: E) over e.d by e.w
template some(e: E, u: W) where u in e.w and e.r > 0 over e.d per u by 1, e.r
template pair(a: E, b: E) where R(a, b) over a.d, b.d
template valued(a: E, b: E) where R(a, b) over a.d == b.d by 1, a.r * b.r
template keyed(a: E, b: E) where R(a, b) over a.d, b.d per a.g, b.g by a.r
template path(a: E, b: E) where R(a, p) and R(p, b) and a < b over a.d == b.d
"""


def test_large_columns_move_to_files():
    rng = np.random.default_rng(0)
    n, m = 20_000, 300_000
    source = {
        "e": pd.DataFrame(
            {
                "id": np.arange(n),
                "d": rng.choice(["x", "y", "z"], size=n),
                "g": rng.integers(5, size=n),
                "r": rng.normal(size=n),
            }
        ),
        "e_w": pd.DataFrame({"e": rng.integers(n, size=m), "w": rng.integers(2000, size=m)}),
        "r": pd.DataFrame({"a": rng.integers(n, size=m // 3), "b": rng.integers(n, size=m // 3)}),
    }
    spec = relcrf.parse(LARGE).spec
    dataset = relcrf.Dataset(source, memory="60MB")
    found = ground(bind(spec, dataset))
    expected = ground(bind(spec, relcrf.Dataset(source, memory=MUCH)))
    assert_equal_groundings(found, expected)
    assert found.graph.nbytes > 10_000_000
    assert dataset.storage.used_bytes <= dataset.storage.max_bytes < expected.bound.dataset.storage.used_bytes
    is_file = [find_mapped_file(column) is not None for column in columns_of(found)]
    assert any(is_file)
    assert not any(find_mapped_file(column) is not None for column in columns_of(expected))


def test_groundings_of_one_dataset_use_separate_files():
    data = DATA[0]
    dataset = dataset_in_files(frames(*data))
    texts = [DECLARATIONS + "\n".join(KINDS[kind]) for kind in ("singles", "overs")]
    found = [ground(bind(relcrf.parse(text).spec, dataset)) for text in (*texts, texts[0])]
    for text, grounding in zip((*texts, texts[0]), found, strict=True):
        assert_equal_groundings(grounding, ground(bind(relcrf.parse(text).spec, relcrf.Dataset(frames(*data)))))


@pytest.mark.parametrize("backend", ["ess", "local", "pseudo"])
def test_weights_learned_from_files_equal_memory(tmp_path, backend):
    folder, model = small_web(tmp_path), relcrf.load(resource_path("models", "webkb.rcrf"))
    mapped, in_memory = model.ground(dataset_in_files(folder)), model.ground(relcrf.Dataset(folder))
    assert all(find_mapped_file(column) is not None for column in columns_of(mapped) if column.size)
    fits = [api.fit(model, grounding, backend) for grounding in (mapped, in_memory)]
    first, second = (fit.learned.vectors for fit in fits)
    assert first.keys() == second.keys()
    for name, vector in first.items():
        np.testing.assert_array_equal(vector, second[name])
    found, expected = (api.predict(fit, g).probabilities() for fit, g in zip(fits, (mapped, in_memory), strict=True))
    np.testing.assert_array_equal(found, expected)
