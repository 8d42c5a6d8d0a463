"""Hover text for the word under the cursor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from relcrf.editor.document import Document
from relcrf.editor.glossary import GLOSSARY
from relcrf.editor.learned_templates import LearnedTemplate, find_learned_template
from relcrf.editor.symbols import Binder, Namespace, Symbol
from relcrf.editor.template_summary import summarize_template
from relcrf.errors import UsageError, listing
from relcrf.language.render import render_declaration as render_declaration
from relcrf.language.tokens import Token
from relcrf.model import spec as s
from relcrf.model.functions import FUNCTIONS, FunctionSignature
from relcrf.model.rules import all_templates
from relcrf.model.types import Bag, Bool, DomainType

MAX_VALUES = 40
"""Maximum number of domain values shown; more values would fill the screen."""


@dataclass(frozen=True)
class Hover:
    """Markdown about the characters from `start` to `stop`."""

    text: str
    start: int
    stop: int


def hover(document: Document, offset: int, roots: Sequence[Path]) -> Hover | None:
    """Return the hover text of the word at an offset; None if there is none.

    Args:
        roots: Folders of the workspace that are searched for runs.
    """
    token = document.text.token_at(offset)
    if token is None or token.kind not in ("name", "text", "number"):
        return None
    occurrence = document.index.occurrence_at(document.name, token.start)
    if occurrence is not None:
        parts = list(_describe_symbol(document, occurrence.symbol, roots))
    else:
        parts = list(_describe_word(document, token, roots))
    return Hover("\n\n".join(parts), token.start, token.stop) if parts else None


def _describe_word(document: Document, token: Token, roots: Sequence[Path]) -> Iterator[str]:
    """Describe a keyword or a built-in function."""
    before = document.text.token_before(token.start)
    if token.kind != "name" or (before is not None and before.text == "."):
        return
    following = document.text.code_tokens(token.stop, len(document.text.text))[:1]
    is_call = bool(following) and following[0].text == "("
    if is_call and token.text in FUNCTIONS:
        try:
            yield function_help(FUNCTIONS[token.text])
        except UsageError as error:
            yield error.diagnostics[0].message
    elif token.text in GLOSSARY:
        yield f"**{token.text}**: {GLOSSARY[token.text]}"
        declared = document.text.declaration_at(token.start)
        if token.text == "rule" and declared is not None and declared.start == token.start:
            yield from _describe_unnamed_rule(document, token, roots)


def function_help(signature: FunctionSignature) -> str:
    """Return the signature and the summary of a built-in function."""
    return f"{_code_block(str(signature))}\n\n{signature.summary}"


def _describe_symbol(document: Document, symbol: Symbol, roots: Sequence[Path]) -> Iterator[str]:
    spec = document.spec
    match symbol.namespace:
        case Namespace.NAME:
            yield from _describe_declaration(spec, symbol.name)
        case Namespace.ATTRIBUTE:
            yield from _describe_attribute(spec, symbol)
        case Namespace.VALUE:
            declared = spec.domain(symbol.owner)
            if isinstance(declared, s.EnumeratedDomain) and symbol.name in declared.values:
                number = declared.values.index(symbol.name) + 1
                yield f"`{symbol.name}`: value {number} of {len(declared.values)} of `{symbol.owner}`"
        case Namespace.BINDER:
            binder = document.index.binders.get(symbol)
            if binder is not None:
                yield from _describe_binder(spec, symbol.name, binder)
        case Namespace.WEIGHTS:
            yield from _describe_weights(document, symbol.name, roots)


def _describe_declaration(spec: s.ModelSpec, name: str) -> Iterator[str]:
    declared = spec.domain(name) or spec.entity(name) or spec.relation(name) or spec.feature(name)
    match declared:
        case None:
            return
        case s.EnumeratedDomain() | s.RangeDomain() | s.OpenDomain():
            about = _describe_values(declared)
        case s.Entity():
            about = f"entity type, whose table has the key `{declared.key}`"
        case s.Relation():
            about = "observed: its tuples are the rows of its table"
        case s.RandomRelation():
            value = "a truth value" if declared.type == Bool() else f"a value of {declared.type}"
            tuples = "that satisfies `where`" if declared.where is not None else "of its arguments"
            about = f"random: {value} for every tuple {tuples}"
        case s.DerivedRelation():
            about = "derived: its tuples are computed from other tables"
        case s.Feature():
            about = "feature: its value is computed from evidence for each entity"
    if isinstance(declared, s.EnumeratedDomain) and len(declared.values) > MAX_VALUES:
        yield _code_block(f"domain {declared.name} = {{ {', '.join(declared.values[:MAX_VALUES])}, ... }}")
    else:
        yield _code_block(render_declaration(declared))
    yield about


def _describe_values(domain: s.Domain) -> str:
    if isinstance(domain, s.OpenDomain):
        return "values are read from the data"
    if isinstance(domain, s.RangeDomain):
        return f"{domain.high - domain.low + 1:,} values"
    return f"{len(domain.values)} values; their order is the order of the states"


def _describe_attribute(spec: s.ModelSpec, symbol: Symbol) -> Iterator[str]:
    declared = spec.attribute(symbol.owner, symbol.name)
    if declared is None:
        return
    yield _code_block(attribute_signature(symbol.owner, declared))
    if declared.is_random:
        predicted = "random: observed if the data has a value, otherwise a query variable"
        yield "random and unobserved" if declared.latent else predicted
    else:
        yield "evidence; the time from which the row is known" if declared.is_time else "evidence"
    kind = declared.type
    domain = spec.domain(kind.domain) if isinstance(kind, DomainType | Bag) else None
    if isinstance(domain, s.EnumeratedDomain):
        yield f"`{domain.name}` has {listing(domain.values, MAX_VALUES)}"
    elif domain is not None:
        yield f"`{domain.name}`: {_describe_values(domain)}"


def attribute_signature(owner: str, declared: s.AttributeDeclaration) -> str:
    """Return the declaration of an attribute, qualified with its owner."""
    return f"{declared.role}{owner}.{declared.name} : {declared.type}"


def _describe_binder(spec: s.ModelSpec, name: str, binder: Binder) -> Iterator[str]:
    yield _code_block(f"{name}: {binder.type_name}" if binder.type_name else name)
    of = f" of `{binder.declaration}`" if binder.declaration else ""
    match binder.role:
        case "binder":
            yield f"binder{of}: ranges over {_every_value(spec, binder.type_name)}"
        case "argument":
            yield f"argument{of}"
        case _:
            yield f"existentially quantified variable in the condition{of}: ranges over {_every_value(spec, binder.type_name)}"


def _every_value(spec: s.ModelSpec, type_name: str) -> str:
    return f"every value of {type_name}" if spec.domain(type_name) is not None else f"every {type_name or 'entity'}"


# Templates and their learned weights


def _describe_weights(document: Document, name: str, roots: Sequence[Path]) -> Iterator[str]:
    spec = document.spec
    declared = next((d for d in spec.all_declarations if isinstance(d, s.Template | s.Rule) and d.name == name), None)
    template = next((t for t in all_templates(spec) if t.name == name), None)
    if declared is None or template is None:
        sharing = [f"`{t.name}`" for t in all_templates(spec) if t.weights == name]
        if sharing:
            yield f"weights shared by {listing(sharing)}"
        return
    yield _code_block(render_declaration(declared))
    yield from _describe_template(document, template, roots)


def _describe_unnamed_rule(document: Document, token: Token, roots: Sequence[Path]) -> Iterator[str]:
    for template in all_templates(document.spec):
        span = template.span
        is_here = span is not None and span.source.name == document.name
        if is_here and span is not None and document.text.offsets(span)[0] == token.start:
            yield from _describe_template(document, template, roots)


def _describe_template(document: Document, template: s.Template, roots: Sequence[Path]) -> Iterator[str]:
    yield summarize_template(template, document.spec)
    learned = find_learned_template(template, document.text.text, document.folder, roots)
    if learned is not None:
        yield from _describe_learned(learned)


def _describe_learned(learned: LearnedTemplate) -> Iterator[str]:
    weights = "1 weight" if learned.n_weights == 1 else f"{learned.n_weights:,} weights"
    bindings = "1 binding" if learned.n_bindings == 1 else f"{learned.n_bindings:,} bindings"
    largest = learned.largest
    is_zero = not largest["weight"].any()
    zero = ", all 0" if is_zero else ""
    yield f"**Learned** in `{learned.folder.name}` by {learned.backend}: {weights}{zero}; {bindings}"
    if is_zero:
        return
    has_keys = any(largest["key"])
    has_features = any(largest["feature"] != "1")
    columns = ["weight", "pattern", *["key"] * has_keys, *["feature"] * has_features]
    rows = [columns, ["---:", *["---"] * (len(columns) - 1)]]
    for _, key, feature, pattern, value in largest.rows():
        cells = [f"{value:+.3f}", _code_cell(pattern)]
        rows.append([*cells, *[_code_cell(key)] * has_keys, *[_code_cell(feature)] * has_features])
    yield "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _code_cell(text: str) -> str:
    return "`" + text.replace("`", "'").replace("|", "\\|").replace("\n", " ") + "`"


def _code_block(code: str) -> str:
    return f"```rcrf\n{code}\n```"
