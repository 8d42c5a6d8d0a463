"""Every benchmark starts, and at its smallest size ends in one JSON object with the keys that it promises."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from forked_script import run_forked

FOLDER = Path(__file__).parents[2] / "benchmarks"
SHARED = {
    "choosing_tasks",
    "collective",
    "few_label_rivals",
    "linkage_splink",
    "network_task",
    "number_targets",
    "support",
}
BENCHMARKS = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in SHARED)
NEED_DATA = {
    "animals_nations",
    "ask",
    "ask_numbers",
    "audit",
    "choosing",
    "classical",
    "clusters",
    "cora",
    "entities",
    "few_labels",
    "joint",
    "numbers",
    "optimisers",
    "sensors",
    "webkb",
}
ARGUMENTS = {
    "few_labels": ("--tasks", "cora_20"),
    "unaries": ("--task", "rings"),
    "update": ("--skip-auto", "--scenarios", "sites"),
}
"""Further arguments of the smallest size."""

KEYS = {
    "ask": "cora pages seconds_ask growth_10x labels_ratio",
    "ask_numbers": "prices temperature growth growth_random",
    "audit": "precision_at_k wins seconds growth_10x growth_10x_half_labelled datasets",
    "choosing": "people",
    "bp_adjoint": "ratio_torch ratio_jax gradient_difference",
    "chain": "ratio_crfsuite_k5 ratio_crfsuite_k25 loss_difference",
    "collective_peers": "100 ratio_numpy_learn_infer ratio_pgmax_infer",
    "diagnostics": "mutations one_diagnostic_share right_line_share tracebacks",
    "edge_grafting": "edges first-hit features time_share_best_choice",
    "entities": "citations_400 citations",
    "few_labels": "cora_20 wins_over_gcn",
    "forest": "ratio_numpy_k5 ratio_torch_k5 ratio_pgmax_k5 ratio_pgmpy_k5 ratio_numpy_k25 ratio_two_cores "
    "ratio_max_over_sum",
    "gated": "pareto_gated pareto_static pareto_l1 ungated bayes ratio_gated_dense_100",
    "gpu": "rows ratio_grid_k2 ratio_grid_k5 ratio_grid_k10 ratio_random_k2 ratio_random_k5 ratio_random_k10",
    "grounding": "cpu_over_sql peak_over_arrays out_of_core_peak_over_written bytes_per_pair_factor bytes_per_unary "
    "guard_share",
    "induction": "ratio_scipy_product ratio_dense_product ratio_dense_gradient peak_mib_100k_states ratio_full_cfi "
    "ratio_grafting_cfi",
    "joint": "1",
    "kills": "seed commands total",
    "knowledge": "hierarchy kinship",
    "language": "lines_per_second import_ratio",
    "limits": "machine kernels",
    "linkage": "records relcrf",
    "loopy": "ratio_pgmax_k2 ratio_pgmax_k5 ratio_pgmax_k10 ratio_libdai_residual",
    "numbers": "crps rmse seconds growth growth_random growth_random_ess",
    "optimisers": "web thermometers digits recipes",
    "pseudo_likelihood": "ratio_dense_200 ratio_dense_600 ratio_counts ratio_saga",
    "random_networks": "beyond_threshold thresholds sizes",
    "sensors": "rows ess ess_regularised chow_liu dense",
    "serve": "requests_per_second p50_ms p99_ms growth_mib batched malformed one_answer_share",
    "spanning_forest": "ratio_scipy ratio_scipy_dense",
    "spark": "weight_difference checksums_equal survived_kill overhead_seconds_per_iteration",
    "startup": "help version check import import_load first_train second_train warmup demo_wall",
    "tables": "rows count read store wall_over_read peak_mib growth_10x",
    "uai": "instances within_1e4_20s exact_and_wrong false_impossible median_error_by_family",
    "texts": "pairs_per_second ratio_join seconds_nearest seconds_nearest_ngrams peak_mib",
    "unaries": "rings",
    "update": "pages 200 time_share time_share_auto difference",
    "web": "pages seconds_ground seconds_learn seconds_infer peak_mib accuracy_local accuracy growth_10x",
    "webkb": "local ess ess_max_margin dense svm",
    "cora": "local ess ess_max_margin dense svm",
}
"""Keys at the top level; benchmarks of several data sets have one object for each instead."""

HELP = """
import contextlib, io, runpy, sys
folder, *names = sys.argv[1:]
sys.path.insert(0, folder)
for name in names:
    sys.argv[:] = [name, "--help"]
    shown = io.StringIO()
    try:
        with contextlib.redirect_stdout(shown):
            runpy.run_path(f"{folder}/{name}.py", run_name="__main__")
    except SystemExit as end:
        assert end.code in (None, 0), name
    else:
        raise AssertionError(f"{name} does not end after --help")
    assert "--quick" in shown.getvalue() and "--smallest" not in shown.getvalue(), name
"""


def test_every_benchmark_has_help():
    """In one process, which imports what they need once."""
    done = subprocess.run(
        [sys.executable, "-c", HELP, str(FOLDER), *BENCHMARKS], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", BENCHMARKS)
def test_smallest_size(name, request, tmp_path):
    if name in NEED_DATA and "RELCRF_DATA" not in os.environ:
        pytest.skip("RELCRF_DATA is not set")
    if name == "spark":
        request.getfixturevalue("spark_installed")
    code, output, errors = run_forked(FOLDER / f"{name}.py", "--smallest", *ARGUMENTS.get(name, ()), folder=tmp_path)
    assert code == 0, errors
    found = json.loads(output.splitlines()[-1])
    assert found and set(KEYS.get(name, "").split()) <= set(found)


@pytest.mark.slow
def test_axes_of_few_labels(tmp_path):
    """With two fast methods; the smallest size of a task runs all of them."""
    options = ("--smallest", "--axes", "--methods", "logistic", "gcn")
    code, output, errors = run_forked(FOLDER / "few_labels.py", *options, folder=tmp_path)
    assert code == 0, errors
    found = json.loads(output.splitlines()[-1])
    assert found == json.loads((tmp_path / "few_labels_axes.json").read_text())
    for axis in ("degree", "homophily", "labels", "signal"):
        assert len(found[axis]["gcn"]["accuracy"]) == len(found[axis]["values"]) == 2
    assert (tmp_path / "few_labels_axes.svg").read_text().startswith("<?xml")
    assert (tmp_path / "few_labels_axes.png").stat().st_size > 10_000
