"""The similarities of texts that a model computes: calls of `tfidf_cosine` and `token_jaccard` with their columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from relcrf.model import expressions as e
from relcrf.model.functions import TEXT_SIMILARITIES
from relcrf.model.rules import all_templates
from relcrf.model.spec import ModelSpec, NearestNeighbours, feature_operands
from relcrf.model.typing import NameScope

TextColumn: TypeAlias = tuple[str, str]
"""The entity type and the name of a string attribute."""


@dataclass(frozen=True, order=True)
class TextSimilarity:
    """A similarity of the texts of two columns, which may be the same column.

    Args:
        function: `tfidf_cosine` or `token_jaccard`.
        columns: the two columns in ascending order; all similarities are symmetric.
        length: number of characters of a token; 0 if tokens are words.
    """

    function: str
    columns: tuple[TextColumn, TextColumn]
    length: int = 0

    def __str__(self) -> str:
        texts = [f"{entity}.{attribute}" for entity, attribute in dict.fromkeys(self.columns)]
        return f"{self.function}({', '.join([*texts, *([str(self.length)] if self.length else [])])})"


def find_text_similarity(node: e.FunctionCall, scope: NameScope) -> tuple[TextSimilarity, tuple[str, str]]:
    """Return the similarity that a valid call computes, and the names of the entities, in the order of the columns."""
    texts = [argument for argument in node.arguments[:2] if isinstance(argument, e.Attribute)]
    pairs = sorted(((scope.type_names[text.binder], text.attribute), text.binder) for text in texts)
    (first, name), (second, other) = pairs
    length = sum(int(argument.value) for argument in node.arguments[2:] if isinstance(argument, e.Number))
    return TextSimilarity(node.name, (first, second), length), (name, other)


def text_similarities(spec: ModelSpec) -> list[TextSimilarity]:
    """Return the distinct similarities of a valid model in ascending order."""
    if not spec.functions & set(TEXT_SIMILARITIES):
        return []
    found = set()
    for scope, expressions in _scoped_expressions(spec):
        for inner, node in (pair for expression in expressions for pair in scope.walk(expression)):
            if isinstance(node, e.FunctionCall) and node.name in TEXT_SIMILARITIES:
                found.add(find_text_similarity(node, inner)[0])
    return sorted(found)


def _scoped_expressions(spec: ModelSpec) -> Iterator[tuple[NameScope, Iterable[e.Expression]]]:
    """Yield the expressions of each declaration with their scope."""
    templates = all_templates(spec)
    for template in templates:
        features = (feature for gate in spec.gates if gate.template == template.name for feature in gate.by)
        where = () if template.where is None else (template.where,)
        scope = NameScope(spec, template.parameters, template.where)
        yield scope, (*template.over, *template.per, *template.by, *where, *features)
    for relation in spec.random_relations:
        if relation.where is not None:
            yield NameScope(spec, relation.parameters, relation.where), (relation.where,)
    for derived in spec.derived_relations:
        definition = derived.definition
        if isinstance(definition, NearestNeighbours):
            yield NameScope(spec, derived.parameters, None), (definition.measure,)
        else:
            yield NameScope(spec, derived.parameters, definition), (definition,)
    for feature in spec.features:
        yield NameScope(spec, feature.parameters, None), feature_operands(feature)
