"""The words of the language."""

from __future__ import annotations

import re

from relcrf.model.functions import FUNCTIONS
from relcrf.model.types import SCALARS

DECLARATIONS = (
    "domain",
    "entity",
    "relation",
    "predict",
    "derive",
    "template",
    "candidates",
    "rule",
    "gate",
    "include",
)
BODY = ("where", "over", "per", "by")
"""The clauses of a template, in their order."""

OPTIONS = ("init", "fixed", "l1", "l2", "weights")
CLAUSES = (*BODY, *OPTIONS, "and", "or", "not", "in")

ROLES = ("predict", "latent")
"""Words before an attribute that is random."""

CONTINUING = (*CLAUSES, "latent", "bag", "of", "open", "nearest", "symmetric", "hard", *DECLARATIONS)
"""Words that stand beside a name inside a declaration, or begin the next one."""

BEFORE_NAMES = ("predict", "latent", "where")
"""Words that no attribute can have as its name, since they stand before one or end a type."""

LANGUAGE = frozenset({*CONTINUING, "true", "false"})
"""No name of any kind of declaration."""


def is_name(text: str) -> bool:
    """Return whether the grammar takes a text for a name."""
    return re.fullmatch(r"[A-Za-z_]\w*", text, re.ASCII) is not None


def is_reserved(name: str) -> bool:
    """Whether it is no name of what an expression or a type can mention."""
    return name in LANGUAGE or name in SCALARS or name in FUNCTIONS
