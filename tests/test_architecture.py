"""The house: imports run one way, and none hides in a function."""

import ast
from pathlib import Path

import pytest

import relcrf

PACKAGE = Path(relcrf.__file__).parent
LAYERS = (
    ("printable",),
    ("errors", "files", "json_values", "plugins", "resources", "settings"),
    ("execution",),
    ("columns",),
    ("model",),
    ("language",),
    ("model_files",),
    ("text",),
    ("data",),
    ("kernels",),
    ("graph",),
    ("gpu",),
    ("grounding",),
    ("inference",),
    ("learning",),
    ("structure",),
    ("unaries",),
    ("backends",),
    ("evaluation",),
    ("progress_reporting",),
    ("prediction",),
    ("clustering",),
    ("training",),
    ("updating",),
    ("api",),
    ("builder",),
    ("serving",),
    ("report",),
    ("proposal",),
    ("relbench",),
    ("demo",),
    ("datasets",),
    ("estimators",),
    ("editor",),
    ("cli",),
    ("__main__",),
)
NUMBERS = ("kernels", "graph", "gpu", "inference", "learning", "structure")
WORDS = ("model", "language", "data", "grounding")
OPTIONAL = ("sklearn", "skops", "matplotlib", "pandas", "pyarrow", "pyspark", "py4j", "psycopg", "torch")
"""Packages of extras, which may be imported where they are needed."""


def layer(module: str) -> int:
    part = module.split(".")[1]
    return next(k for k, names in enumerate(LAYERS) if part in names)


def imports(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node, node.module if node.module != "relcrf" else f"relcrf.{node.names[0].name}"
        elif isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)


def module_statements(tree):
    """Return the statements of a module that run when it is imported, also those in `try` for what a system lacks."""
    tried = [statement for statement in tree.body if isinstance(statement, ast.Try)]
    parts = [block for each in tried for block in (each.body, *(handler.body for handler in each.handlers))]
    return [*tree.body, *(statement for block in parts for statement in block)]


FILES = [p for p in sorted(PACKAGE.rglob("*.py")) if p != PACKAGE / "__init__.py"]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_run_down(path):
    tree = ast.parse(path.read_text())
    own = "relcrf." + ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    for node, module in imports(tree):
        if module == "relcrf.__version__":
            continue
        if module.startswith("relcrf."):
            assert layer(module) <= layer(own), f"{own} imports {module}"
            if own.split(".")[1] in NUMBERS:
                assert module.split(".")[1] not in WORDS, f"{own} is of the numbers' wing and imports {module}"
        if node not in module_statements(tree):
            assert module.split(".")[0] in OPTIONAL, f"{own} hides the import of {module}"


def test_files_have_one_subject():
    long = {str(p.relative_to(PACKAGE)): n for p in FILES if (n := len(p.read_text().splitlines())) > 600}
    assert long == {}
