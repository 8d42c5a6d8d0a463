"""The keywords of the language."""

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
    "feature",
    "template",
    "candidates",
    "rule",
    "gate",
    "include",
)
TEMPLATE_CLAUSES = ("where", "over", "per", "by", "as")
"""The keywords of a template's clauses, in their order; `as` is followed by `of`."""

OPTION_KEYWORDS = ("init", "fixed", "l1", "l2", "weights")
CLAUSE_KEYWORDS = (*TEMPLATE_CLAUSES, *OPTION_KEYWORDS, "and", "or", "not", "in")

ROLE_KEYWORDS = ("predict", "latent", "time")
"""Keywords before an attribute; `time` is also a type and may be the name of an attribute."""

CONTEXT_KEYWORDS = (
    *CLAUSE_KEYWORDS,
    "latent",
    "time",
    "bag",
    "of",
    "open",
    "nearest",
    "propagate",
    "along",
    "normalised",
    "classifier",
    "regressor",
    "from",
    "using",
    "joint",
    "symmetric",
    "hard",
    *DECLARATION_KEYWORDS,
)
"""Keywords that may follow a name: inside a declaration, or as the first word of the next declaration."""

RESERVED_FOR_ATTRIBUTES = ("predict", "latent", "where")
"""Keywords that cannot be names of attributes, because they may precede an attribute or follow a type."""

KEYWORDS = frozenset({*CONTEXT_KEYWORDS, "true", "false"})
"""All keywords."""

RESERVED = KEYWORDS - {"from", "using", "joint"}
"""Keywords that cannot be names of declarations and parameters; the others can, because they only follow expressions."""


def is_name(text: str) -> bool:
    """Return True if a text is a valid identifier of the language."""
    return re.fullmatch(r"[A-Za-z_]\w*", text, re.ASCII) is not None


def is_reserved(name: str) -> bool:
    """Return True if a name is a keyword, a type or a function."""
    return name in RESERVED or name in SCALARS or name in FUNCTIONS
