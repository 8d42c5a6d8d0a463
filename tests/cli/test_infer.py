"""Tests of `relcrf infer`: all tasks against enumeration, output files, verdicts and exit codes."""

import json
import math
import os
import threading
from dataclasses import dataclass

import numpy as np
import pytest
from command import json_command, relcrf_command
from networks import CLIQUES, FORESTS, LOOPS, grid_edges, network

from relcrf.graph.scopes import Potentials, Scopes
from relcrf.graph.uai import UaiModel, format_model
from relcrf.inference import methods
from relcrf.inference.enumeration import Enumeration
from relcrf.inference.result import AbstractInference, MapStates, Marginals, Observer, Verdict, ignore_progress

NETWORKS = {**FORESTS, **LOOPS, **CLIQUES}
THREE = "MARKOV\n3\n2 2 3\n2\n2 0 1\n2 1 2\n4\n4.0 2.4 1.0 0.0\n6\n2.25 3.25 3.75 0 0 10\n"


@pytest.fixture
def infer(capsys, monkeypatch):
    return lambda *arguments: relcrf_command(capsys, monkeypatch, "infer", *arguments)


@pytest.fixture
def infer_json(capsys, monkeypatch):
    return lambda *arguments: json_command(capsys, monkeypatch, "infer", *arguments)


@pytest.fixture
def three(tmp_path):
    path = tmp_path / "three.uai"
    path.write_text(THREE)
    return path


@pytest.fixture
def impossible(tmp_path):
    """Return an evidence file of probability 0: the first two variables are both in state 1."""
    path = tmp_path / "impossible.evid"
    path.write_text("2 0 1 1 1")
    return path


def test_known_answers(infer, three):
    code, out, err = infer(three, "--task", "PR")
    assert (code, "note: auto: exact" in err) == (0, True)
    word, value = out.split()
    assert word == "PR" and float(value) == pytest.approx(math.log10(70.25), abs=1e-10)
    assert infer(three, "--task", "mpe")[1] == "MPE\n3 0 1 2\n"
    words = infer(three, "--task", "MAR")[1].split()
    assert words[:3] == ["MAR", "3", "2"] and float(words[3]) == pytest.approx(61 / 70.25, abs=1e-9)


@pytest.mark.parametrize("method", ["auto", "jt", "enumeration"])
@pytest.mark.parametrize(
    "name", ["one loop", "factors of any size", "hard transitivity", "parallel factors", "nothing"]
)
def test_every_task_against_enumeration(infer_json, tmp_path, name, method):
    scopes, potentials = NETWORKS[name](np.random.default_rng(5))
    model, evid = tmp_path / "m.uai", tmp_path / "m.evid"
    model.write_text(format_model(UaiModel(scopes, potentials, -3.0)))
    states = np.full(scopes.n_nodes, -1)
    states[1:3] = Enumeration(scopes).map_states(potentials).states[1:3]
    known = np.flatnonzero(states >= 0)
    evid.write_text(f"1\n{len(known)} {' '.join(f'{v} {states[v]}' for v in known)}\n")
    clamped = potentials.clamp(scopes, states)
    exact, best = Enumeration(scopes).marginals(clamped), Enumeration(scopes).map_states(clamped)
    command = (model, "--evidence", evid, "--method", method)
    for task in ("PR", "MAR"):
        code, found = infer_json(*command, "--task", task)
        assert code == 0 and found["verdict"]["status"] == "exact"
        assert found["log10_partition"] == pytest.approx((exact.log_partition - 3.0) / math.log(10), abs=1e-11)
    np.testing.assert_allclose([p for table in found["marginals"] for p in table], exact.nodes, atol=1e-9)
    assert (found["variables"], found["observed"]) == (scopes.n_nodes, len(known))
    assert found["verdict"]["exact_variables"] == scopes.n_nodes - len(known)
    code, found = infer_json(*command, "--task", "MPE")
    assert code == 0 and found["gap"] == 0.0
    assert found["log10_score"] == pytest.approx((best.score - 3.0) / math.log(10), abs=1e-11)
    assert scopes.score(clamped, np.array(found["states"], dtype=np.int64)) == pytest.approx(best.score)


def test_result_file_is_written_atomically(infer, three, impossible, tmp_path):
    out = tmp_path / "three.MAR"
    code, printed, _ = infer(three, "--task", "MAR", "--out", out)
    assert (code, printed) == (0, "")
    before = out.read_text()
    assert before.startswith("MAR\n3 2 0.868327")
    assert infer(three, "--task", "MAR", "--evidence", impossible, "--out", out)[0] == 3
    assert out.read_text() == before and not list(tmp_path.glob(".*"))
    for place in (tmp_path, tmp_path / "none" / "x"):
        code, _, err = infer(three, "--task", "MAR", "--out", place)
        assert (code, "E314" in err) == (2, True)


def test_output_to_pipe_or_link(infer, three, tmp_path):
    """A path that is not a regular file is written directly; replacing it would destroy it, e.g. /dev/null as root."""
    pipe, heard = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: heard.append(pipe.read_text()), daemon=True)
    reader.start()
    assert infer(three, "--task", "PR", "--out", pipe)[0] == 0
    reader.join(10)
    assert pipe.is_fifo() and heard[0].startswith("PR\n1.84664")
    link, file = tmp_path / "link", tmp_path / "file"
    file.write_text("")
    link.symlink_to(file)
    assert infer(three, "--task", "PR", "--out", link)[0] == 0
    assert link.is_symlink() and file.read_text().startswith("PR\n1.84664")


def test_json_output_with_result_file(infer_json, three, tmp_path):
    code, found = infer_json(three, "--task", "PR", "--out", tmp_path / "x.PR")
    assert code == 0 and found["out"] == str(tmp_path / "x.PR")
    assert (tmp_path / "x.PR").read_text().startswith("PR\n1.84664")


def test_evidence_of_probability_zero(infer, infer_json, three, impossible):
    assert infer(three, "--task", "PR", "--evidence", impossible)[:2] == (0, "PR\n-inf\n")
    assert infer_json(three, "--task", "PR", "--evidence", impossible)[1]["possible"] is False
    for task in ("MAR", "MPE"):
        code, out, err = infer(three, "--task", task, "--evidence", impossible)
        assert (code, out, "E242" in err) == (3, "", True)


@pytest.mark.parametrize("method", methods.METHODS)
def test_zero_factor_without_free_variables(infer, tmp_path, method):
    """A zero factor without free variables is an error with every method."""
    model, evid = tmp_path / "m.uai", tmp_path / "m.evid"
    model.write_text("MARKOV\n2\n2 2\n1\n2 0 1\n4\n0 1 1 1\n")
    evid.write_text("2 0 0 1 0")
    zero = tmp_path / "zero.uai"
    zero.write_text("MARKOV\n1\n2\n2\n0\n1 0\n1\n0\n2\n1 1\n")
    for arguments in ((model, "--evidence", evid), (zero,)):
        for task in ("MAR", "MPE"):
            code, out, err = infer(*arguments, "--task", task, "--method", method)
            assert (code, out, "E242" in err) == (3, "", True)
    if method not in ("dual", "search"):
        assert infer(zero, "--task", "PR", "--method", method)[:2] == (0, "PR\n-inf\n")


def test_invalid_files(infer, infer_json, three, tmp_path):
    evid = tmp_path / "x.evid"
    evid.write_text("1 9 0")
    code, _, err = infer(three, "--task", "PR", "--evidence", evid)
    assert (code, "E241" in err, "x.evid:1:3" in err) == (3, True, True)
    code, _, err = infer(evid, "--task", "PR")
    assert (code, "E240" in err) == (3, True)
    code, found = infer_json(tmp_path / "none.uai", "--task", "PR")
    assert (code, [e["code"] for e in found["errors"]]) == (3, ["E240"])


def test_invalid_options(infer, tmp_path, three):
    grid = tmp_path / "grid.uai"
    scopes, potentials = network(np.random.default_rng(0), np.full(36, 2), grid_edges(6, 6))
    grid.write_text(format_model(UaiModel(scopes, potentials, 0.0)))
    for arguments, code in [
        ((three, "--task", "XX"), "E300"),
        ((three,), "E300"),
        ((three, "--task", "PR", "--method", "junction"), "E380"),
        ((three, "--task", "PR", "--method", "jt", "--set", "mem=1"), "E304"),
        ((three, "--task", "PR", "--method", "jt", "--set", "memory=x"), "E305"),
        ((grid, "--task", "PR", "--method", "forest"), "E381"),
        ((grid, "--task", "MPE", "--method", "enumeration"), "E381"),
        ((grid, "--task", "MAR", "--method", "jt", "--set", "memory=500"), "E381"),
    ]:
        found, out, err = infer(*arguments)
        assert (found, out) == (2, "") and code in err, err
    assert "a clique over the nodes" in err


def test_damaged_files_never_cause_tracebacks(infer, tmp_path):
    rng = np.random.default_rng(1)
    pieces = ["", " ", "\n", "0", "-1", "4", "1e99", "nan", "x", "c", "\x00", "\u00e9"]
    files = {tmp_path / "m.uai": THREE, tmp_path / "m.evid": "1\n2 0 1 2 2\n"}
    seen = set()
    for k in range(150):
        for path, text in files.items():
            for _ in range(int(rng.integers(0, 3))):
                at, length = int(rng.integers(len(text))), int(rng.integers(0, 3))
                text = text[:at] + pieces[rng.integers(len(pieces))] + text[at + length :]
            path.write_text(text)
        task = ("PR", "MAR", "MPE")[k % 3]
        code, out, err = infer(tmp_path / "m.uai", "--evidence", tmp_path / "m.evid", "--task", task)
        assert code in (0, 3) and "internal error" not in err and "Traceback" not in err, err
        assert out.startswith(task) if code == 0 else err.count("error[E24") == 1
        seen.add(code)
    assert seen == {0, 3}


def test_evidence_reduces_clique_sizes(infer_json, tmp_path):
    """Observing one column splits a grid into two graphs of smaller treewidth, which fit the memory limit."""
    n = 7
    scopes, potentials = network(np.random.default_rng(0), np.full(n * n, 2), grid_edges(n, n))
    model, evid = tmp_path / "grid.uai", tmp_path / "grid.evid"
    model.write_text(format_model(UaiModel(scopes, potentials, 0.0)))
    evid.write_text(f"{n} " + " ".join(f"{n * row + n // 2} 0" for row in range(n)))
    question = (model, "--task", "PR", "--method", "jt", "--set", "memory=10000")
    assert infer_json(*question)[0] == 2
    assert infer_json(*question, "--evidence", evid)[0] == 0


@dataclass(frozen=True)
class Rounds(AbstractInference):
    """A fake iterative method that ends with the status of its setting."""

    scopes: Scopes
    status: str = "not converged"
    observe: Observer = ignore_progress

    def marginals(self, potentials: Potentials) -> Marginals:
        self.observe(Verdict("running", 1, 0.5))
        nodes = np.repeat(1.0 / self.scopes.cardinality, self.scopes.cardinality)
        return Marginals(math.nan, nodes, potentials.factors, Verdict(self.status, 12, 0.25))

    def map_states(self, potentials: Potentials) -> MapStates:
        states = np.zeros(self.scopes.n_nodes, dtype=np.int32)
        score = self.scopes.score(potentials, states)
        return MapStates(score, states, score + math.log(10), Verdict(self.status, 12, 0.25))


def test_verdicts(infer, infer_json, three, monkeypatch, tmp_path):
    monkeypatch.setattr(methods, "METHODS", {**methods.METHODS, "rounds": Rounds})
    question = (three, "--method", "rounds", "--task")
    code, out, err = infer(*question, "MAR")
    assert (code, out.startswith("MAR\n3 2 0.5 0.5")) == (0, True)
    assert "rounds: not converged after 12 iterations, residual 0.25; 0 of 3 exact" in err
    code, out, err = infer(*question, "MAR", "--strict", "--out", tmp_path / "x")
    assert (code, out, "E402" in err, (tmp_path / "x").exists()) == (4, "", True, False)
    assert infer(*question, "MAR", "--strict", "--set", "status=converged")[0] == 0
    code, out, err = infer(*question, "MPE")
    assert (code, out) == (0, "MPE\n3 0 0 0\n") and "at most 1 below the optimum" in err
    assert infer_json(*question, "MPE")[1]["gap"] == pytest.approx(1.0)
    code, _, err = infer(*question, "PR")
    assert (code, "E381" in err) == (2, True)


def test_ctrl_c_outputs_partial_result(infer, infer_json, three, monkeypatch, tmp_path):
    monkeypatch.setattr(methods, "METHODS", {**methods.METHODS, "rounds": Rounds})
    question = (three, "--method", "rounds", "--set", "status=interrupted", "--task", "MAR")
    out = tmp_path / "x.MAR"
    code, _, err = infer(*question, "--out", out, "--strict")
    assert (code, "interrupted" in err, out.read_text()[:4]) == (130, True, "MAR\n")
    code, found = infer_json(*question)
    assert (code, found["verdict"]["status"]) == (130, "interrupted")
    assert json.dumps(found["log10_partition"]) == "null"


def test_marginal_map(infer, infer_json, three, tmp_path):
    """Maximise over variables 2 and 0 the sum over variable 1, compared with the eight nonzero joint states."""
    query, evid = tmp_path / "three.query", tmp_path / "three.evid"
    query.write_text("2 2 0\n")
    code, out, err = infer(three, "--task", "MMAP", "--query", query)
    # Sums over variable 1: 4.0 * 3.75 + 2.4 * 10 = 39 for states 2 and 0; the joint states of variable 0 = 1 have less.
    assert (code, out) == (0, "MMAP\n2 2 0\n") and "auto: exact" in err
    found = infer_json(three, "--task", "MMAP", "--query", query)[1]
    assert found["log10_score"] == pytest.approx(math.log10(39.0)) and found["states"] == [2, 0]
    evid.write_text("1 2 1")
    assert infer(three, "--task", "MMAP", "--query", query, "--evidence", evid)[1] == "MMAP\n2 1 0\n"
    for text in ("2 0 0", "1 3", "2 1", "x", "1 0 1"):
        query.write_text(text)
        code, out, err = infer(three, "--task", "MMAP", "--query", query)
        assert (code, out, err.count("error[E243]")) == (3, "", 1), text
    query.write_text("1 0")
    for arguments, error in (
        (("--task", "MMAP"), "E300"),
        (("--task", "MPE", "--query", query), "E300"),
        (("--task", "MMAP", "--query", query, "--method", "bp"), "E381"),
    ):
        code, _, err = infer(three, *arguments)
        assert (code, error in err) == (2, True)


def test_marginal_map_of_a_large_model_is_approximate(infer_json, tmp_path):
    """If the constrained elimination order needs too many cells, heuristic states are returned with a bound."""
    n = 6
    scopes, potentials = network(np.random.default_rng(0), np.full(n * n, 2), grid_edges(n, n), 1.0)
    model, query = tmp_path / "grid.uai", tmp_path / "grid.query"
    model.write_text(format_model(UaiModel(scopes, potentials, 0.0)))
    query.write_text(f"{n * n // 2} " + " ".join(str(2 * v) for v in range(n * n // 2)))
    command = (model, "--task", "MMAP", "--query", query)
    exact = infer_json(*command)[1]
    found = infer_json(*command, "--set", "max_cells=20000")[1]
    assert exact["verdict"]["status"] == "exact" and found["verdict"]["status"] == "not converged"
    assert found["log10_score"] <= exact["log10_score"] + 1e-9 <= found["log10_bound"] + 2e-9
    assert len(found["states"]) == n * n // 2


def test_doubt_about_an_impossible_model(infer, tmp_path):
    """Belief propagation converges on an odd cycle of nodes that must differ; the note says that no joint state is known."""
    model = tmp_path / "cycle.uai"
    table = "4\n0 1 1 0\n"
    model.write_text(f"MARKOV\n3\n2 2 2\n3\n2 0 1\n2 1 2\n2 2 0\n{table * 3}")
    for task in ("PR", "MAR"):
        code, _, err = infer(model, "--task", task, "--method", "bp")
        assert code == 0 and "no joint state with positive probability is known" in err
    assert infer(model, "--task", "PR")[:2] == (0, "PR\n-inf\n")
    code, _, err = infer(model, "--task", "MAR")
    assert (code, "E242" in err) == (3, True)
