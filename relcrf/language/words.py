"""The words of the language, and those that it is going to have."""

from __future__ import annotations

from relcrf.model.functions import FUNCTIONS
from relcrf.model.types import SCALARS

DECLARATIONS = ("domain", "entity", "relation", "derive", "template")
CLAUSES = ("where", "over", "per", "by", "init", "fixed", "l1", "l2", "and", "or", "not", "in")

LATER = (
    "latent",
    "predict relation",
    "rule",
    "hard",
    "gate",
    "candidates",
    "include",
    "symmetric",
    "exists",
    "count",
    "sum",
)
"""What the language is going to have and this version does not."""

CONTINUING = (*CLAUSES, "predict", "bag", "of", "open", "nearest", *DECLARATIONS)
"""Words that stand beside a name inside a declaration, or begin the next one."""

LANGUAGE = frozenset({*CONTINUING, *LATER, "true", "false"})
"""No name of any kind of declaration."""

RESERVED = LANGUAGE | {*SCALARS, *FUNCTIONS}
"""No name of what an expression or a type can mention."""
