"""The UAI format: example files, round trips, and errors of invalid files."""

import math

import numpy as np
import pytest
from networks import CLIQUES, FORESTS, LOOPS

from relcrf.errors import DataError
from relcrf.graph.uai import (
    UaiModel,
    format_marginals,
    format_model,
    format_partition,
    format_states,
    read_evidence,
    read_model,
)
from relcrf.inference.enumeration import Enumeration

THREE = "MARKOV\n3\n2 2 3\n2\n2 0 1\n2 1 2\n\n4\n 4.0 2.4\n 1.0 0.0\n\n6\n 2.25 3.25 3.75\n 0 0.0e0 1e1\n"
"""The example of the competition's website: three variables, two functions, zeros."""


def read(tmp_path, text):
    path = tmp_path / "model.uai"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_model(path)


def read_states(tmp_path, text, cardinality=(2, 2, 3)):
    path = tmp_path / "model.evid"
    path.write_text(text)
    return read_evidence(path, np.array(cardinality, dtype=np.int32)).tolist()


def test_example_file(tmp_path):
    model = read(tmp_path, THREE)
    found = Enumeration(model.scopes).marginals(model.potentials)
    # The sum over the last variable is 9.25 if the middle one is 0, and 10 if it is 1.
    z = 4 * 9.25 + 2.4 * 10 + 1 * 9.25
    assert found.log_partition == pytest.approx(math.log(z))
    np.testing.assert_allclose(found.nodes[:4], np.array([37 + 24, 9.25, 46.25, 24]) / z)
    assert Enumeration(model.scopes).map_states(model.potentials).states.tolist() == [0, 1, 2]


def test_unary_and_constant_factors_and_scope_order(tmp_path):
    text = "BAYES\n2\n2 3\n5\n0\n1 1\n2 1 0\n1 0\n1 1\n1\n 0.5 3 .1 .2 .7 6 1 2 3 4 5 6 2 1 0.25 3 1 1 2\n"
    model = read(tmp_path, text)
    assert model.constant == pytest.approx(math.log(0.5))
    np.testing.assert_allclose(np.exp(model.potentials.nodes), [1, 0.25, 0.1, 0.2, 1.4])
    assert model.scopes.node.tolist() == [1, 0]
    # The last variable of the scope varies fastest: entry 2 * x1 + x0.
    weight = [[(1, 0.25)[a] * (0.1, 0.2, 1.4)[b] * (2 * b + a + 1) for b in range(3)] for a in range(2)]
    found = Enumeration(model.scopes).marginals(model.potentials)
    assert found.log_partition == pytest.approx(math.log(np.sum(weight)))


def test_a_bayesian_network_sums_to_one(tmp_path):
    text = "BAYES 3 2 2 2 3 1 0 2 0 1 3 0 1 2 2 .3 .7 4 .9 .1 .2 .8 8 .5 .5 .1 .9 .6 .4 0 1"
    model = read(tmp_path, text)
    assert Enumeration(model.scopes).marginals(model.potentials).log_partition == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("name", [n for n in {**FORESTS, **LOOPS, **CLIQUES} if "1e4" not in n and "300" not in n])
def test_format_and_read_round_trip(tmp_path, name):
    scopes, potentials = {**FORESTS, **LOOPS, **CLIQUES}[name](np.random.default_rng(3))
    restored = read(tmp_path, format_model(UaiModel(scopes, potentials, 0.25)))
    assert restored.constant == pytest.approx(0.25)
    full, tables = scopes.expand_agreements(potentials)
    for column in ("cardinality", "start", "node"):
        assert (getattr(restored.scopes, column) == getattr(full, column)).all()
    np.testing.assert_allclose(restored.potentials.nodes, tables.nodes, atol=1e-13)
    np.testing.assert_allclose(restored.potentials.factors, tables.factors, atol=1e-13)


def test_overflowing_potential_raises():
    scopes, potentials = FORESTS["forest with weights of 1e4"](np.random.default_rng(0))
    with pytest.raises(ValueError, match="overflows or underflows"):
        format_model(UaiModel(scopes, potentials, 0.0))


def test_other_spellings_are_accepted(tmp_path):
    """The network type may be in lower case, and comments may begin with #, % or //."""
    text = b"# made by hand\nmarkov\n1\n2\n// one factor\n1\n1 0\n% its table\n2\n1 3\n"
    model = read(tmp_path, text)
    np.testing.assert_allclose(model.potentials.nodes, np.log([1.0, 3.0]))
    (tmp_path / "twice.evid").write_text("2 0 1 0 1")
    assert read_evidence(tmp_path / "twice.evid", model.scopes.cardinality).tolist() == [1]


def test_bayesian_network_has_an_upper_bound(tmp_path):
    """The partition function of a Bayesian network with evidence is a probability."""
    tables = "2\n0.4 0.6\n4\n0.1 0.9 0.5 0.5\n"
    network = f"2\n2 2\n2\n1 0\n2 0 1\n{tables}"
    assert read(tmp_path, f"BAYES\n{network}".encode()).upper < 0.01
    assert read(tmp_path, f"MARKOV\n{network}".encode()).upper == math.inf
    assert read(tmp_path, f"BAYES\n{network.replace('0.9', '0.8')}".encode()).upper == math.inf


def test_comments_and_windows_line_endings(tmp_path):
    model = read(tmp_path, b"\xef\xbb\xbfc made by hand\r\nMARKOV\r\n1\r\n2\r\nc\r\n1\r\n1 0\r\n2\r\n1 3\r\n")
    np.testing.assert_allclose(np.exp(model.potentials.nodes), [1, 3])


INVALID = {
    "": ("1:1", "expected MARKOV or BAYES at the start"),
    "MARKO 3": ("1:1", "'MARKO'"),
    "MARKOV": ("1:7", "the file ends within the number of variables"),
    "MARKOV 1.5": ("1:8", "not 1.5"),
    "MARKOV -1": ("1:8", "not -1"),
    "MARKOV\n2\n2": ("3:2", "expected 2 numbers, found 1"),
    "MARKOV\n1\n0\n0": ("3:1", "from 1 to"),
    "MARKOV\n2\n2000000000 2000000000\n0": ("3:1", "states in total"),
    "MARKOV\n1\n2\n1\n2 0 0": ("5:1", "the number of variables of factor 0"),
    "MARKOV\n2\n2 2\n1\n2 0 2\n4\n1 1 1 1": ("5:5", "unknown variable 2"),
    "MARKOV\n2\n2 2\n1\n2 0 0\n4\n1 1 1 1": ("5:5", "variable 0 occurs twice in factor 0"),
    "MARKOV\n2\n2 2\n1\n2 0 1\n3\n1 1 1": ("6:1", "must have 4 entries, not 3"),
    "MARKOV\n2\n2 2\n1\n2 0 1\n4\n1 1 1": ("7:6", "expected 4 entries, found 3"),
    "MARKOV\n2\n2 2\n1\n2 0 1\n4\n1 1 1 1 1": ("7:9", "after the last table"),
    "MARKOV\n1\n2\n1\n1 0\n2\n1 -0.5": ("7:3", "not -0.5"),
    "MARKOV\n1\n2\n1\n1 0\n2\nnan 1": ("7:1", "not nan"),
    "MARKOV\n1\n2\n1\n1 0\n2\n1 1e999": ("7:3", "not inf"),
    "MARKOV\n1\n2\n1\n1 0\n2\n1 1,5": ("7:3", "'1,5' is not a number"),
    "MARKOV\n1\n2\n1\n1 0\n2\n1 \u00a02": ("7:3", "is not a number"),
    "MARKOV 1 2 1 1 0 2 1 1" + " 1" * 200: ("1:24", "after the last table"),
}


@pytest.mark.parametrize("text", INVALID, ids=range(len(INVALID)))
def test_invalid_models_raise_e240_with_location(tmp_path, text):
    place, message = INVALID[text]
    with pytest.raises(DataError) as caught:
        read(tmp_path, text)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "E240" and diagnostic.hint
    assert message in diagnostic.message
    assert f"model.uai:{place}" in diagnostic.render()
    assert max(map(len, diagnostic.render().splitlines())) < 400


def test_unreadable_files_raise_e240(tmp_path):
    for path in (tmp_path, tmp_path / "none.uai"):
        with pytest.raises(DataError, match="E240"):
            read_model(path)
    with pytest.raises(DataError, match="not a UTF-8 text"):
        read(tmp_path, b"MARKOV \xff\xfe")


@pytest.mark.parametrize(
    ("text", "states"),
    [
        ("", [-1, -1, -1]),
        ("0\n", [-1, -1, -1]),
        ("1\n0\n", [-1, -1, -1]),
        ("1 0 1", [1, -1, -1]),
        ("2 0 1 2 2", [1, -1, 2]),
        ("2\n0 1\n2 2\n", [1, -1, 2]),
        ("1\n1 0 1\n", [1, -1, -1]),
        ("1\n2 0 1 2 2", [1, -1, 2]),
        ("1\n2\n0 1\n2 2", [1, -1, 2]),
    ],
)
def test_evidence_with_and_without_count_line(tmp_path, text, states):
    assert read_states(tmp_path, text) == states


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 3 0", "unknown variable 3"),
        ("1 2 3", "unknown state 3"),
        ("1 -1 0", "not -1"),
        ("1 0 0.5", "not 0.5"),
        ("2 0 1 0 0", "variable 0 is observed in the states 1 and 0"),
        ("2 0 1", "expected 4 numbers, found 2"),
        ("1 0", "expected 2 numbers, found 1"),
        ("1 0 1 1", "unexpected numbers after"),
        ("2\n1 0 1\n1 0 0", "2 sets of evidence"),
        ("one 0 1", "'one' is not a number"),
    ],
)
def test_invalid_evidence_raises_e241(tmp_path, text, message):
    with pytest.raises(DataError) as caught:
        read_states(tmp_path, text)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "E241" and message in diagnostic.message and diagnostic.hint


def test_results_in_competition_format():
    assert format_partition(-0.2008 * math.log(10)) == "PR\n-0.2008\n"
    assert format_partition(-math.inf) == "PR\n-inf\n"
    nodes = np.array([0.1, 0.9, 0.3, 0.7, 0.2, 0.2, 0.6])
    assert format_marginals(np.array([2, 2, 3]), nodes) == "MAR\n3 2 0.1 0.9 2 0.3 0.7 3 0.2 0.2 0.6\n"
    assert format_states(np.array([0, 1, 0])) == "MPE\n3 0 1 0\n"
    assert format_marginals(np.array([], dtype=int), np.array([])) == "MAR\n0\n"


def test_mutated_files_are_read_or_raise(tmp_path):
    """Mutated files raise DataError or are read completely."""
    rng = np.random.default_rng(0)
    pieces = [
        b" ",
        b"\n",
        b"0",
        b"-1",
        b"7",
        b"1e9",
        b"1e400",
        b"nan",
        b"x",
        b"c",
        b"\x00",
        b"\xff",
        b".",
        b"9999999999",
    ]
    n_errors = 0
    for _ in range(600):
        text = bytearray(THREE.encode())
        for _ in range(int(rng.integers(1, 4))):
            at, kind = int(rng.integers(len(text))), rng.integers(3)
            piece = pieces[rng.integers(len(pieces))]
            if kind == 0:
                del text[at : at + int(rng.integers(1, 9))]
            elif kind == 1:
                text[at:at] = piece
            else:
                text[at : at + 1] = piece
        try:
            model = read(tmp_path, bytes(text))
        except DataError as error:
            assert len(error.diagnostics) == 1
            n_errors += 1
            continue
        assert len(model.potentials.factors) == model.scopes.table_start[-1]
        assert len(model.potentials.nodes) == model.scopes.state_start[-1]
        assert not np.isnan(model.potentials.factors).any() and (model.potentials.factors < np.inf).all()
    assert 300 < n_errors < 600


def test_large_files_are_read_without_entry_loops(tmp_path):
    """A quarter of a million factors are read in seconds, without a loop over entries."""
    n = 250_000
    rng = np.random.default_rng(0)
    second = 1 + np.arange(n)
    lines = ["MARKOV", str(n + 1), " ".join(["2"] * (n + 1)), str(n)]
    lines += [f"2 {b - 1} {b}" for b in second.tolist()]
    values = rng.random((n, 4))
    lines += [f"4 {' '.join(map(repr, row))}" for row in values.tolist()]
    model = read(tmp_path, "\n".join(lines))
    np.testing.assert_allclose(np.exp(model.potentials.factors), values.ravel(), rtol=1e-12)
