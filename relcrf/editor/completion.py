"""Code completion: candidates for the word at the cursor."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from relcrf.editor.document import Document
from relcrf.editor.glossary import GLOSSARY
from relcrf.editor.hover import attribute_signature, function_help
from relcrf.editor.partial_declaration import PartialDeclaration
from relcrf.errors import UsageError
from relcrf.language.clauses import NORMALISATIONS
from relcrf.language.keywords import CLAUSE_KEYWORDS, CONTEXT_KEYWORDS, DECLARATION_KEYWORDS, TEMPLATE_CLAUSES
from relcrf.language.parse import feed_parser
from relcrf.language.render import render_value
from relcrf.language.tokens import COMPARISONS, DeclarationTokens, SourceText, literal_terminals
from relcrf.model import spec as s
from relcrf.model.functions import AGGREGATES, FUNCTIONS, NEAREST_MEASURES
from relcrf.model.rules import all_templates
from relcrf.model.types import SCALARS, Bag
from relcrf.unaries.estimators import SHORT_NAMES

MAX_VALUES = 500
"""Maximum number of domain values offered; longer lists are not useful."""

TRIGGER_CHARACTERS = (".", ":", "=", "(", ",", '"', " ")
"""Characters after which an editor requests completion automatically."""

_TRIGGERS_BEFORE_SPACE = frozenset(
    {*COMPARISONS, ":", "where", "over", "per", "by", "in", "of", "and", "or", "not", "=>", "weights"}
)
"""Tokens after which a typed space triggers completion; a list of candidates after every word would be a nuisance."""

_TERM_KEYWORDS = ("not", "true", "false")
"""Keywords that can start an expression."""

_SNIPPETS = {
    "domain": "domain ${1:Name} = ${2:open}",
    "entity": "entity ${1:Name} {\n    ${2:attribute} : ${3:real}\n}",
    "relation": "relation ${1:Name}(${2:a}: ${3:Entity}, ${4:b}: ${5:Entity})",
    "predict": "predict relation ${1:Name}(${2:a}: ${3:Entity})",
    "derive": "derive ${1:Name}(${2:a}: ${3:Entity}, ${4:b}: ${5:Entity})\n    where ${0}",
    "feature": "feature ${1:name}(${2:a}: ${3:Entity}) = ${0}",
    "template": "template ${1:name}(${2:a}: ${3:Entity})\n    over ${0}",
    "candidates": "candidates ${1:name}(${2:a}: ${3:Entity})\n    over ${0}",
    "rule": "rule: ${1:body} => ${2:head}",
    "gate": "gate ${1:template} by ${0}",
    "include": 'include "${1:common.rcrf}"',
}


@dataclass(frozen=True)
class CompletionCandidate:
    """A completion candidate.

    Args:
        kind: Name of a `CompletionItemKind` of the protocol.
        rank: Sort key; candidates with smaller ranks come first.
        snippet: Text inserted instead of the label by editors that support placeholders such as `${1:name}`.
    """

    label: str
    kind: str
    rank: int
    detail: str = ""
    documentation: str = ""
    snippet: str = ""


@dataclass(frozen=True)
class Completions:
    """Completion candidates, and the range of characters, from `start` to `stop`, that a candidate replaces."""

    start: int
    stop: int
    items: tuple[CompletionCandidate, ...]


def complete(document: Document, offset: int, *, after_space: bool = False) -> Completions | None:
    """Return the completion candidates at an offset; None if there are none.

    Args:
        after_space: Whether a typed space triggered the request.
    """
    text = document.text
    index = bisect_left([t.start for t in text.tokens], offset) - 1
    token = text.tokens[index] if index >= 0 and text.tokens[index].stop >= offset else None
    if token is not None and (token.kind in ("comment", "number", "other")):
        return None
    if token is not None and token.kind == "text" and (offset < token.stop or token.terminal == "UNCLOSED"):
        context = _CursorContext(document, token.start)
        stop = token.stop - 1 if token.terminal == "STRING" else offset
        return Completions(token.start + 1, stop, tuple(context.quoted_items()))
    start, stop = (token.start, token.stop) if token is not None and token.kind == "name" else (offset, offset)
    context = _CursorContext(document, start)
    if after_space and context.previous_text not in _TRIGGERS_BEFORE_SPACE:
        return None
    best: dict[str, CompletionCandidate] = {}
    for item in sorted(
        context.items(), key=lambda item: item.rank
    ):  # the sort is stable: values stay in the order of the domain
        best.setdefault(item.label, item)
    return Completions(start, stop, tuple(best.values()))


@dataclass(frozen=True)
class ExpectedWords:
    """The continuations of an incomplete declaration that the grammar allows.

    Args:
        words: The keywords that can follow.
        takes_term: Whether an expression can start here.
        is_whole: Whether the declaration can end here.
    """

    words: frozenset[str]
    takes_term: bool
    is_whole: bool


def expected_words(text: str) -> ExpectedWords | None:
    """Return the possible continuations of an incomplete declaration; None if the declaration has a syntax error."""
    parser, _, wrong = feed_parser(SourceText(text).code_tokens(0, len(text)))
    if wrong is not None:
        return None
    names: set[str] = parser.accepts()
    words = {word for name in names if (word := literal_terminals().get(name, "")).isidentifier()}
    if "AGGREGATE" in names:
        words |= set(AGGREGATES)
    return ExpectedWords(frozenset(words), {"NAME", "LPAR"} <= names, "$END" in names)


class _CursorContext:
    """The context of the cursor: the declaration that contains it, and the tokens before it."""

    def __init__(self, document: Document, offset: int) -> None:
        self.document = document
        self.spec = document.spec
        before = document.text.text[:offset]
        line = before.rfind("\n") + 1
        self.is_line_start = not before[line:].strip()
        self.is_unindented = self.is_line_start and line == offset
        # The word at the cursor may look like the start of a declaration, so search at the character before the word.
        enclosing = document.text.declaration_at(offset - 1) if offset else None
        self._set_declaration(enclosing, before, offset)
        if enclosing is not None and self.expected is None:
            # The parser does not yet recognise a line that contains only `predict` or `rule` as a declaration.
            tokens = document.text.code_tokens(line, enclosing.stop)
            if tokens and tokens[0].start < offset and tokens[0].text in DECLARATION_KEYWORDS:
                started = expected_words(before[tokens[0].start :])
                if started is not None:
                    self._set_declaration(DeclarationTokens(tuple(tokens)), before, offset)

    def _set_declaration(self, declared: DeclarationTokens | None, before: str, offset: int) -> None:
        """Set the declaration that contains the cursor."""
        tokens = [t for t in declared.tokens if t.start < offset] if declared is not None else []
        self.texts = tuple(token.text for token in tokens)
        self.previous_text = self.texts[-1] if tokens else ""
        self.declaration = PartialDeclaration(declared, self.spec) if declared is not None and tokens else None
        self.expected = expected_words(before[declared.start :] if declared is not None else before)

    @property
    def index(self) -> int:
        """The index, within the declaration, of a token that starts at the cursor."""
        return len(self.texts)

    # Candidates

    def items(self) -> Iterator[CompletionCandidate]:
        """Yield all candidates for a cursor outside quotation marks."""
        declaration = self.declaration
        if declaration is None:
            yield from self._declaration_items()
            return
        if self.previous_text == ".":
            yield from self._attribute_items(declaration)
            return
        if self.previous_text == "weights" or self.texts == ("gate",):
            for template in all_templates(self.spec):
                if " " not in template.name:  # an unnamed rule has a name such as `rule 2`
                    yield CompletionCandidate(template.name, "Function", 0, "template")
            return
        if self.previous_text == "along":
            for name in [*(r.name for r in self.spec.relations), *(r.name for r in self.spec.derived_relations)]:
                yield CompletionCandidate(name, "Interface", 0, "relation")
            return
        if self.previous_text == "normalised":
            for word in NORMALISATIONS:
                yield CompletionCandidate(word, "EnumMember", 0, "normalisation")
            return
        if self.previous_text == "using":
            for word in SHORT_NAMES:
                yield CompletionCandidate(word, "EnumMember", 0, "estimator")
            return
        if self.texts[-2:] == ("as", "of"):
            for name, type_name in declaration.scope_at(0).binders.items():
                if self.spec.time_attribute(type_name) is not None:
                    yield CompletionCandidate(name, "Variable", 0, f"{name}: {type_name}")
            return
        if self.previous_text == "of" and self.texts[-2:-1] == ("bag",):
            yield from self._domain_items()
            return
        if self.previous_text == ":" and declaration.keyword != "rule":
            yield from self._type_items(declaration)
            return
        yield from self._keyword_items()
        is_term = self.expected.takes_term if self.expected is not None else self.index >= declaration.body_index
        if is_term and declaration.keyword not in ("domain", "entity", "relation", "include"):
            yield from self._term_items(declaration)

    def quoted_items(self) -> Iterator[CompletionCandidate]:
        """Yield the candidates for a cursor inside quotation marks: files to include, or values of a domain."""
        if self.previous_text == "include":
            folder = self.document.folder
            models = [*folder.glob("*.rcrf"), *folder.glob("*/*.rcrf")] if folder is not None else []
            for path in sorted(p for p in models if p != self.document.path):
                if folder is not None:
                    yield CompletionCandidate(path.relative_to(folder).as_posix(), "File", 0)
        elif self.declaration is not None:
            domain = self.declaration.expected_type_name(self.index)
            for value in self._domain_values(domain):
                yield CompletionCandidate(json.dumps(value, ensure_ascii=False)[1:-1], "EnumMember", 0, domain or "")

    def _declaration_items(self, rank: int = 0) -> Iterator[CompletionCandidate]:
        for word in DECLARATION_KEYWORDS:
            yield CompletionCandidate(word, "Keyword", rank, documentation=GLOSSARY[word], snippet=_SNIPPETS[word])

    def _keyword_items(self) -> Iterator[CompletionCandidate]:
        expected = self.expected
        words = expected.words if expected is not None else frozenset(CLAUSE_KEYWORDS)
        for word in sorted(words - {*AGGREGATES, *_TERM_KEYWORDS}, key=CONTEXT_KEYWORDS.index):
            yield CompletionCandidate(word, "Keyword", 2, documentation=GLOSSARY[word])
        if self.is_line_start and (expected is None or expected.is_whole):
            yield from self._declaration_items(0 if self.is_unindented else 6)

    def _attribute_items(self, declaration: PartialDeclaration) -> Iterator[CompletionCandidate]:
        owner = declaration.owner_at(self.index - 1)
        declared = (self.spec.entity(owner) or self.spec.relation(owner)) if owner else None
        for attribute in declared.attributes if isinstance(declared, s.Entity | s.Relation) else ():
            is_unusual = attribute.is_random and self._current_clause(declaration) in ("where", "per", "by")
            head = attribute_signature(owner or "", attribute)
            yield CompletionCandidate(attribute.name, "Field", 1 if is_unusual else 0, head)

    def _domain_items(self, rank: int = 1) -> Iterator[CompletionCandidate]:
        for domain in self.spec.domains:
            yield CompletionCandidate(domain.name, "Enum", rank, "domain")

    def _type_items(self, declaration: PartialDeclaration) -> Iterator[CompletionCandidate]:
        """Yield types of parameters, attributes or random relations."""
        if self.index < declaration.body_index:
            for entity in self.spec.entities:
                yield CompletionCandidate(entity.name, "Class", 0, "entity")
            yield from self._domain_items()
            return
        is_predicted = self.texts[-3:-2] == ("predict",)
        is_random = declaration.keyword == "predict" or is_predicted or self.texts[-3:-2] == ("latent",)
        yield from self._domain_items(0)
        for name in ("bool", "real") if is_predicted else ("bool",) if is_random else SCALARS:
            yield CompletionCandidate(name, "Keyword", 1, documentation=GLOSSARY[name])
        if not is_random:
            yield CompletionCandidate("bag of", "Keyword", 1, documentation=GLOSSARY["bag"])

    def _term_items(self, declaration: PartialDeclaration) -> Iterator[CompletionCandidate]:
        """Yield candidates for the start of an expression."""
        domain = declaration.expected_type_name(self.index)
        for value in self._domain_values(domain):
            yield CompletionCandidate(render_value(value), "EnumMember", 0, f"value of {domain}")
        if self.previous_text == "in":
            yield from self._bag_items(declaration)
            return
        argument_type = declaration.argument_type_name(self.index)
        for name, type_name in declaration.scope_at(self.index).type_names.items():
            yield CompletionCandidate(name, "Variable", 0 if type_name == argument_type else 1, f"{name}: {type_name}")
        clause = self._current_clause(declaration)
        if "nearest" in self.texts:
            for name in NEAREST_MEASURES:
                yield self._function_item(name, 0)
            return
        call = declaration.call_at(self.index)
        if call is not None and self.spec.relation(call[0]) is not None:
            return  # arguments of a relation are binders and constants
        relations: tuple[s.AnyRelation, ...] = (
            *self.spec.relations,
            *self.spec.derived_relations,
            *self.spec.random_relations,
        )
        for relation in relations:
            if isinstance(relation, s.RandomRelation) and clause in ("where", "per", "by"):
                continue
            placeholders = ", ".join(f"${{{k}:{p.name}}}" for k, p in enumerate(relation.parameters, 1))
            head = f"{relation.name}({', '.join(map(str, relation.parameters))})"
            kind = (
                "derived"
                if isinstance(relation, s.DerivedRelation)
                else "random"
                if isinstance(relation, s.RandomRelation)
                else ""
            )
            yield CompletionCandidate(
                relation.name, "Interface", 3, f"{kind} {head}".strip(), snippet=f"{relation.name}({placeholders})"
            )
        for feature in self.spec.features if clause == "by" else ():
            head = f"{feature.name}({', '.join(map(str, feature.parameters))})"
            snippet = f"{feature.name}(${{1:{feature.parameters[0].name}}})" if feature.parameters else ""
            yield CompletionCandidate(feature.name, "Property", 2, f"feature {head}", snippet=snippet)
        for word in _TERM_KEYWORDS:
            yield CompletionCandidate(word, "Keyword", 5, documentation=GLOSSARY[word])
        for name in FUNCTIONS:
            yield self._function_item(name, 4)
        for name in AGGREGATES:
            yield CompletionCandidate(name, "Function", 4, documentation=GLOSSARY[name], snippet=f"{name} {{ ${{0}} }}")

    @staticmethod
    def _function_item(name: str, rank: int) -> CompletionCandidate:
        try:
            signature = FUNCTIONS[name]
        except UsageError as error:  # a plugin is broken; the checker reports this if a model calls the function
            return CompletionCandidate(name, "Function", rank, documentation=error.diagnostics[0].message)
        placeholders = ", ".join(f"${{{k}:{p}}}" for k, p in enumerate(signature.required, 1))
        return CompletionCandidate(
            name, "Function", rank, str(signature), function_help(signature), f"{name}({placeholders})"
        )

    def _bag_items(self, declaration: PartialDeclaration) -> Iterator[CompletionCandidate]:
        """Yield the bags of all binders; bags over the domain of the element, the term before `in`, come first."""
        type_names = declaration.scope_at(self.index).type_names
        element = type_names.get(self.texts[-2], "") if len(self.texts) > 1 else ""
        for name, type_name in type_names.items():
            entity = self.spec.entity(type_name)
            for attribute in entity.attributes if entity is not None else ():
                if isinstance(attribute.type, Bag):
                    rank = 1 if element and attribute.type.domain != element else 0
                    yield CompletionCandidate(
                        f"{name}.{attribute.name}", "Field", rank, attribute_signature(type_name, attribute)
                    )

    # Context

    def _current_clause(self, declaration: PartialDeclaration) -> str:
        if declaration.keyword == "rule":
            return "over"
        if declaration.keyword in ("derive", "predict"):
            return "where"
        if declaration.keyword == "feature":
            return "by"
        return next((t for t in reversed(self.texts[declaration.body_index :]) if t in TEMPLATE_CLAUSES), "")

    def _domain_values(self, domain: str | None) -> tuple[str, ...]:
        declared = self.spec.domain(domain) if domain else None
        if isinstance(declared, s.RangeDomain) and declared.high - declared.low >= MAX_VALUES:
            return ()
        return declared.values[:MAX_VALUES] if isinstance(declared, s.EnumeratedDomain | s.RangeDomain) else ()
