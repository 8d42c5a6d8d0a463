"""The fast tests, which `make test-fast` runs: quick test files for each package of relcrf.

As a script, this file prints their paths.
"""

FAST = {
    "backends": ("backends/test_numbers.py", "backends/test_pseudo.py"),
    "builder": ("test_builder.py",),
    "cli": ("cli/test_graph.py", "cli/test_interrupted_start.py"),
    "clustering": ("clustering/test_partition.py",),
    "columns": ("columns/test_storage.py", "columns/test_offsets.py"),
    "data": ("data/test_binding.py", "data/test_contract.py"),
    "datasets": ("test_datasets.py",),
    "demo": ("test_demo.py",),
    "editor": ("editor/test_names.py",),
    "estimators": ("estimators/test_structured.py",),
    "evaluation": ("evaluation/test_measures.py", "evaluation/test_splits.py"),
    "execution": ("execution/test_mapped_value.py", "execution/test_summation.py"),
    "gpu": ("gpu/test_device.py",),
    "graph": ("graph/test_factor_graph.py", "graph/test_reduction.py"),
    "grounding": ("grounding/test_examples.py", "grounding/test_keys.py"),
    "inference": ("inference/test_junction_tree.py",),
    "kernels": ("kernels/test_distinct.py", "kernels/test_elimination.py"),
    "language": ("language/test_check.py",),
    "learning": ("learning/test_lbfgs.py", "learning/test_gradients.py"),
    "model": ("language/test_render.py",),
    "proposal": ("proposal/test_proposal.py",),
    "relbench": ("relbench/test_relbench.py",),
    "report": ("report/test_network.py",),
    "serving": ("serving/test_small_groundings.py",),
    "structure": ("structure/test_spanning_forest.py",),
    "unaries": ("unaries/test_learned_features.py",),
    "text": ("editor/test_highlight.py",),
    "updating": ("updating/test_entity_rows.py", "updating/test_locality.py"),
}

if __name__ == "__main__":
    print(*sorted({f"tests/{name}" for files in FAST.values() for name in files}))
