"""What could be typed next."""

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
from relcrf.language.keywords import CLAUSE_KEYWORDS, CONTEXT_KEYWORDS, DECLARATION_KEYWORDS, TEMPLATE_CLAUSES
from relcrf.language.parse import feed_parser
from relcrf.language.render import render_value
from relcrf.language.tokens import COMPARISONS, DeclarationTokens, SourceText, literal_terminals
from relcrf.model import spec as s
from relcrf.model.functions import AGGREGATES, FUNCTIONS, VECTOR_MEASURES
from relcrf.model.rules import all_templates
from relcrf.model.types import SCALARS, Bag

MAX_VALUES = 500
"""Values of a domain that are offered; nobody scrolls through more."""

TRIGGER_CHARACTERS = (".", ":", "=", "(", ",", '"', " ")
"""Characters behind which an editor asks by itself."""

_TRIGGERS_BEFORE_SPACE = frozenset(
    {*COMPARISONS, ":", "where", "over", "per", "by", "in", "of", "and", "or", "not", "=>", "weights"}
)
"""Behind these and a space there is something to offer; anywhere else a list would pop up at every word."""

_TERM_KEYWORDS = ("not", "true", "false")
"""Words that an expression may begin with."""

_SNIPPETS = {
    "domain": "domain ${1:Name} = ${2:open}",
    "entity": "entity ${1:Name} {\n    ${2:attribute} : ${3:real}\n}",
    "relation": "relation ${1:Name}(${2:a}: ${3:Entity}, ${4:b}: ${5:Entity})",
    "predict": "predict relation ${1:Name}(${2:a}: ${3:Entity})",
    "derive": "derive ${1:Name}(${2:a}: ${3:Entity}, ${4:b}: ${5:Entity})\n    where ${0}",
    "template": "template ${1:name}(${2:a}: ${3:Entity})\n    over ${0}",
    "candidates": "candidates ${1:name}(${2:a}: ${3:Entity})\n    over ${0}",
    "rule": "rule: ${1:body} => ${2:head}",
    "gate": "gate ${1:template} by ${0}",
    "include": 'include "${1:common.rcrf}"',
}


@dataclass(frozen=True)
class CompletionCandidate:
    """Something to offer.

    Args:
        kind: as the protocol's `CompletionItemKind` calls it.
        snippet: what is typed instead of the label by editors that can fill in `${1:places}`.
        rank: the smaller, the higher it stands in the list.
    """

    label: str
    kind: str
    rank: int
    detail: str = ""
    documentation: str = ""
    snippet: str = ""


@dataclass(frozen=True)
class Completions:
    """What may take the place of the characters from `start` to `stop`."""

    start: int
    stop: int
    items: tuple[CompletionCandidate, ...]


def complete(document: Document, offset: int, *, after_space: bool = False) -> Completions | None:
    """What could be typed at an offset, where one can tell.

    Args:
        after_space: the editor asks only because a space was typed.
    """
    text = document.text
    left = bisect_left([t.start for t in text.tokens], offset) - 1
    token = text.tokens[left] if left >= 0 and text.tokens[left].stop >= offset else None
    if token is not None and (token.kind in ("comment", "number", "other")):
        return None
    if token is not None and token.kind == "text" and (offset < token.stop or token.terminal == "UNCLOSED"):
        place = _CursorContext(document, token.start)
        stop = token.stop - 1 if token.terminal == "STRING" else offset
        return Completions(token.start + 1, stop, tuple(place.quoted_items()))
    start, stop = (token.start, token.stop) if token is not None and token.kind == "name" else (offset, offset)
    place = _CursorContext(document, start)
    if after_space and place.previous_text not in _TRIGGERS_BEFORE_SPACE:
        return None
    best: dict[str, CompletionCandidate] = {}
    for item in sorted(place.items(), key=lambda item: item.rank):  # values stay in the order of their states
        best.setdefault(item.label, item)
    return Completions(start, stop, tuple(best.values()))


@dataclass(frozen=True)
class ExpectedWords:
    """What the grammar admits behind the beginning of a declaration.

    Args:
        words: of the language.
        takes_term: an expression may begin.
        is_whole: nothing need follow.
    """

    words: frozenset[str]
    takes_term: bool
    is_whole: bool


def expected_words(text: str) -> ExpectedWords | None:
    """Return what may follow the beginning of a declaration; None where it has a mistake already."""
    parser, _, wrong = feed_parser(SourceText(text).code_tokens(0, len(text)))
    if wrong is not None:
        return None
    names: set[str] = parser.accepts()
    words = {word for name in names if (word := literal_terminals().get(name, "")).isidentifier()}
    if "AGGREGATE" in names:
        words |= set(AGGREGATES)
    return ExpectedWords(frozenset(words), {"NAME", "LPAR"} <= names, "$END" in names)


class _CursorContext:
    """A place in a declaration: what stands before it, and what it is part of."""

    def __init__(self, document: Document, offset: int) -> None:
        self.document = document
        self.spec = document.spec
        before = document.text.text[:offset]
        line = before.rfind("\n") + 1
        self.is_line_start = not before[line:].strip()
        self.is_unindented = self.is_line_start and line == offset
        # A word that begins at the cursor may cut the text anew; what counts is the declaration before it.
        whole = document.text.declaration_at(offset - 1) if offset else None
        self._set_declaration(whole, before, offset)
        if whole is not None and self.expected is None:
            # Behind `predict` or `rule` alone the parser does not see that a declaration begins, and we do.
            tokens = document.text.code_tokens(line, whole.stop)
            if tokens and tokens[0].start < offset and tokens[0].text in DECLARATION_KEYWORDS:
                started = expected_words(before[tokens[0].start :])
                if started is not None:
                    self._set_declaration(DeclarationTokens(tuple(tokens)), before, offset)

    def _set_declaration(self, declared: DeclarationTokens | None, before: str, offset: int) -> None:
        """Takes some tokens for the declaration that the place is in."""
        tokens = [t for t in declared.tokens if t.start < offset] if declared is not None else []
        self.texts = tuple(token.text for token in tokens)
        self.previous_text = self.texts[-1] if tokens else ""
        self.declaration = PartialDeclaration(declared, self.spec) if declared is not None and tokens else None
        self.expected = expected_words(before[declared.start :] if declared is not None else before)

    @property
    def index(self) -> int:
        """Which token of the declaration would stand here."""
        return len(self.texts)

    # What there is to offer

    def items(self) -> Iterator[CompletionCandidate]:
        """All that fits."""
        sketch = self.declaration
        if sketch is None:
            yield from self._declaration_items()
            return
        if self.previous_text == ".":
            yield from self._attribute_items(sketch)
            return
        if self.previous_text == "weights" or self.texts == ("gate",):
            for template in all_templates(self.spec):
                if " " not in template.name:  # a rule without a name
                    yield CompletionCandidate(template.name, "Function", 0, "template")
            return
        if self.previous_text == "of" and self.texts[-2:-1] == ("bag",):
            yield from self._domain_items()
            return
        if self.previous_text == ":" and sketch.keyword != "rule":
            yield from self._type_items(sketch)
            return
        yield from self._keyword_items()
        is_term = self.expected.takes_term if self.expected is not None else self.index >= sketch.body_index
        if is_term and sketch.keyword not in ("domain", "entity", "relation", "include"):
            yield from self._term_items(sketch)

    def quoted_items(self) -> Iterator[CompletionCandidate]:
        """What may stand between quotation marks."""
        if self.previous_text == "include":
            folder = self.document.folder
            found = [*folder.glob("*.rcrf"), *folder.glob("*/*.rcrf")] if folder is not None else []
            for path in sorted(p for p in found if p != self.document.path):
                if folder is not None:
                    yield CompletionCandidate(path.relative_to(folder).as_posix(), "File", 0)
        elif self.declaration is not None:
            domain = self.declaration.expected_sort(self.index)
            for value in self._domain_values(domain):
                yield CompletionCandidate(json.dumps(value, ensure_ascii=False)[1:-1], "EnumMember", 0, domain or "")

    def _declaration_items(self, rank: int = 0) -> Iterator[CompletionCandidate]:
        for word in DECLARATION_KEYWORDS:
            yield CompletionCandidate(word, "Keyword", rank, documentation=GLOSSARY[word], snippet=_SNIPPETS[word])

    def _keyword_items(self) -> Iterator[CompletionCandidate]:
        found = self.expected
        words = found.words if found is not None else frozenset(CLAUSE_KEYWORDS)
        for word in sorted(words - {*AGGREGATES, *_TERM_KEYWORDS}, key=CONTEXT_KEYWORDS.index):
            yield CompletionCandidate(word, "Keyword", 2, documentation=GLOSSARY[word])
        if self.is_line_start and (found is None or found.is_whole):
            yield from self._declaration_items(0 if self.is_unindented else 6)

    def _attribute_items(self, sketch: PartialDeclaration) -> Iterator[CompletionCandidate]:
        owner = sketch.owner_at(self.index - 1)
        declared = (self.spec.entity(owner) or self.spec.relation(owner)) if owner else None
        for attribute in declared.attributes if isinstance(declared, s.Entity | s.Relation) else ():
            is_out_of_place = attribute.is_random and self._current_clause(sketch) in ("where", "per", "by")
            head = attribute_signature(owner or "", attribute)
            yield CompletionCandidate(attribute.name, "Field", 1 if is_out_of_place else 0, head)

    def _domain_items(self, rank: int = 1) -> Iterator[CompletionCandidate]:
        for domain in self.spec.domains:
            yield CompletionCandidate(domain.name, "Enum", rank, "domain")

    def _type_items(self, sketch: PartialDeclaration) -> Iterator[CompletionCandidate]:
        """Sorts of parameters; types of attributes and random relations."""
        if self.index < sketch.body_index:
            for entity in self.spec.entities:
                yield CompletionCandidate(entity.name, "Class", 0, "entity")
            yield from self._domain_items()
            return
        is_random = sketch.keyword == "predict" or self.texts[-3:-2] in (("predict",), ("latent",))
        yield from self._domain_items(0)
        for name in ("bool",) if is_random else SCALARS:
            yield CompletionCandidate(name, "Keyword", 1, documentation=GLOSSARY[name])
        if not is_random:
            yield CompletionCandidate("bag of", "Keyword", 1, documentation=GLOSSARY["bag"])

    def _term_items(self, sketch: PartialDeclaration) -> Iterator[CompletionCandidate]:
        """What an expression may begin with."""
        domain = sketch.expected_sort(self.index)
        for value in self._domain_values(domain):
            yield CompletionCandidate(render_value(value), "EnumMember", 0, f"value of {domain}")
        if self.previous_text == "in":
            yield from self._bag_items(sketch)
            return
        wanted = sketch.sort_of_argument(self.index)
        for name, sort in sketch.scope_at(self.index).type_names.items():
            yield CompletionCandidate(name, "Variable", 0 if sort == wanted else 1, f"{name}: {sort}")
        clause = self._current_clause(sketch)
        if "nearest" in self.texts:
            for name in VECTOR_MEASURES:
                yield self._function_item(name, 0)
            return
        call = sketch.call_at(self.index)
        if call is not None and self.spec.relation(call[0]) is not None:
            return  # arguments of a relation are names and constants
        relations: tuple[s.AnyRelation, ...] = (
            *self.spec.relations,
            *self.spec.derived_relations,
            *self.spec.random_relations,
        )
        for relation in relations:
            if isinstance(relation, s.RandomRelation) and clause in ("where", "per", "by"):
                continue
            places = ", ".join(f"${{{k}:{p.name}}}" for k, p in enumerate(relation.parameters, 1))
            head = f"{relation.name}({', '.join(map(str, relation.parameters))})"
            kind = (
                "derived"
                if isinstance(relation, s.DerivedRelation)
                else "random"
                if isinstance(relation, s.RandomRelation)
                else ""
            )
            yield CompletionCandidate(
                relation.name, "Interface", 3, f"{kind} {head}".strip(), snippet=f"{relation.name}({places})"
            )
        if clause != "per":
            for word in _TERM_KEYWORDS:
                yield CompletionCandidate(word, "Keyword", 5, documentation=GLOSSARY[word])
            for name in FUNCTIONS:
                yield self._function_item(name, 4)
            for name in AGGREGATES:
                yield CompletionCandidate(
                    name, "Function", 4, documentation=GLOSSARY[name], snippet=f"{name} {{ ${{0}} }}"
                )

    @staticmethod
    def _function_item(name: str, rank: int) -> CompletionCandidate:
        try:
            signature = FUNCTIONS[name]
        except UsageError as error:  # a broken package; the checker says so where a model calls it
            return CompletionCandidate(name, "Function", rank, documentation=error.diagnostics[0].message)
        places = ", ".join(f"${{{k}:{p}}}" for k, p in enumerate(signature.parameters, 1))
        detail = f"{name}({', '.join(signature.parameters)}): {signature.result}"
        return CompletionCandidate(name, "Function", rank, detail, function_help(signature), f"{name}({places})")

    def _bag_items(self, sketch: PartialDeclaration) -> Iterator[CompletionCandidate]:
        """The bags of all names, those of the element's domain first."""
        sorts = sketch.scope_at(self.index).type_names
        element = sorts.get(self.texts[-2], "") if len(self.texts) > 1 else ""
        for name, sort in sorts.items():
            entity = self.spec.entity(sort)
            for attribute in entity.attributes if entity is not None else ():
                if isinstance(attribute.type, Bag):
                    rank = 1 if element and attribute.type.domain != element else 0
                    yield CompletionCandidate(
                        f"{name}.{attribute.name}", "Field", rank, attribute_signature(sort, attribute)
                    )

    # What the place is

    def _current_clause(self, sketch: PartialDeclaration) -> str:
        if sketch.keyword == "rule":
            return "over"
        if sketch.keyword in ("derive", "predict"):
            return "where"
        return next((t for t in reversed(self.texts[sketch.body_index :]) if t in TEMPLATE_CLAUSES), "")

    def _domain_values(self, domain: str | None) -> tuple[str, ...]:
        declared = self.spec.domain(domain) if domain else None
        if isinstance(declared, s.RangeDomain) and declared.high - declared.low >= MAX_VALUES:
            return ()
        return declared.values[:MAX_VALUES] if isinstance(declared, s.EnumeratedDomain | s.RangeDomain) else ()
