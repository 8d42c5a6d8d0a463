"""Notes on labels that differ only in case or spaces, such as `News` and `news`."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence

from relcrf.data.bound_model import BoundModel
from relcrf.errors import listing
from relcrf.model.types import DomainType


def note_similar_values(bound: BoundModel) -> None:
    """Add a note to a bound model for each predicted attribute or relation with similar values, which are different labels."""
    for name, domain in dict(_predicted_domains(bound)).items():
        similar = find_similar_values(bound.domains[domain])
        if not similar:
            continue
        pairs = listing(" and ".join(map(repr, values)) for values in similar)
        note = (
            f"values of {name} differ only in case or spaces and are different labels: {pairs}; if they mean the same, "
            "correct the table, or declare it by a query in dataset.toml that selects equal texts"
        )
        if note not in bound.notes:
            bound.notes.append(note)


def find_similar_values(values: Sequence[str]) -> list[list[str]]:
    """Return the groups of two or more values with equal texts, apart from case, spaces and the encoding of accents."""
    groups: dict[str, list[str]] = {}
    for value in values:
        text = unicodedata.normalize("NFC", value).casefold()
        groups.setdefault("".join(text.split()), []).append(value)
    return [group for group in groups.values() if len(group) > 1]


def _predicted_domains(bound: BoundModel) -> Iterator[tuple[str, str]]:
    """Yield the name and the domain of each predicted attribute and relation."""
    for entity in bound.spec.entities:
        for attribute in entity.attributes:
            if attribute.predicted and isinstance(attribute.type, DomainType):
                yield f"{entity.name}.{attribute.name}", attribute.type.domain
    for relation in bound.spec.random_relations:
        if isinstance(relation.type, DomainType):
            yield relation.name, relation.type.domain
