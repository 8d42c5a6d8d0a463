"""The words of the language."""

from __future__ import annotations

import re

from relcrf.model.functions import FUNCTIONS
from relcrf.model.types import SCALARS

DECLARATION_KEYWORDS = (
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
TEMPLATE_CLAUSES = ("where", "over", "per", "by")
"""The clauses of a template, in their order."""

OPTION_KEYWORDS = ("init", "fixed", "l1", "l2", "weights")
CLAUSE_KEYWORDS = (*TEMPLATE_CLAUSES, *OPTION_KEYWORDS, "and", "or", "not", "in")

ROLE_KEYWORDS = ("predict", "latent")
"""Words before an attribute that is random."""

CONTEXT_KEYWORDS = (
    *CLAUSE_KEYWORDS,
    "latent",
    "bag",
    "of",
    "open",
    "nearest",
    "symmetric",
    "hard",
    *DECLARATION_KEYWORDS,
)
"""Words that stand beside a name inside a declaration, or begin the next one."""

RESERVED_FOR_ATTRIBUTES = ("predict", "latent", "where")
"""Words that no attribute can have as its name, since they stand before one or end a type."""

KEYWORDS = frozenset({*CONTEXT_KEYWORDS, "true", "false"})
"""No name of any kind of declaration."""


def is_name(text: str) -> bool:
    """Return whether the grammar takes a text for a name."""
    return re.fullmatch(r"[A-Za-z_]\w*", text, re.ASCII) is not None


def is_reserved(name: str) -> bool:
    """Whether it is no name of what an expression or a type can mention."""
    return name in KEYWORDS or name in SCALARS or name in FUNCTIONS
