"""Bags of the words of free texts, such as titles and descriptions, of the predicted entities."""

from __future__ import annotations

from relcrf.data.dataset import quoted
from relcrf.data.readers.words import words_sql
from relcrf.proposal.manifest import ManifestBuilder
from relcrf.proposal.names import SPLIT_COLUMNS, NamePool, attribute_name, domain_names
from relcrf.proposal.profile import MAX_SAMPLE_ROWS, ColumnProfile, TableProfile
from relcrf.proposal.schema import ProposedBag, ProposedEntity, ProposedSchema, TableFinding
from relcrf.proposal.target import PredictionTarget

MIN_WORDS = 3.0
"""Minimum mean number of words of a free text, separated by white space; most names have fewer."""

MIN_REPEATED = 0.3
"""Minimum fraction of the words of free texts that also occur in another text; codes and addresses of pages have few."""


def add_words(schema: ProposedSchema, target: PredictionTarget, manifest: ManifestBuilder) -> None:
    """Add a bag of words to the predicted entities, and to the manifest, for each column of free texts in their table."""
    entity = target.entity
    if entity is None or entity.sequence:
        return
    candidate = next(c for c in schema.candidates if schema.types.get(id(c)) is entity)
    table = candidate.table
    if table is None or not manifest.can_query(table):
        return
    names = NamePool([entity.key, *(a.name for a in entity.attributes), *(bag.name for bag in entity.bags)])
    words, joined = {}, {}
    for column in _unused_texts(schema, table, candidate.key):
        if _is_free_text(table, column.name):
            name, text = names.reserve(attribute_name(f"{column.name}_words")), column.name
            if text != candidate.key and not manifest.has_all_columns(entity.name):
                text = joined[column.name] = names.reserve(text)
            words[name] = text
            _add_bag(schema, entity, table, column, name)
    if joined:
        key = quoted(candidate.key) if candidate.key else "row_number() OVER ()"  # as in the query of the entities
        rows = f"SELECT {key} AS entity, {', '.join(map(quoted, joined))}\nFROM {manifest.query_source(table)}"
        columns = ", ".join(f"e.{quoted(text)} AS {quoted(name)}" for text, name in joined.items())
        manifest.join_query(entity.name, table, entity.key, columns, rows)
    if words:
        manifest.add_words(entity.name, words)


def _unused_texts(schema: ProposedSchema, table: TableProfile, key: str | None) -> list[ColumnProfile]:
    """Return the columns of texts that are left out because nearly every row has a different text, or that are the key."""
    unused = {name for name, _ in schema.excluded_columns}
    return [
        column
        for column in table.columns.values()
        if column.kind == "text"
        and (f"{table.name}.{column.name}" in unused or column.name == key)
        and not column.unusable_reason
        and column.name.lower() not in SPLIT_COLUMNS
    ]


def _is_free_text(table: TableProfile, column: str) -> bool:
    """Return True if the cells of a column have several words, many of which occur in several cells."""
    cell = quoted(column)
    sample = f"SELECT {cell} AS cell FROM {table.scan} WHERE {cell} IS NOT NULL LIMIT {MAX_SAMPLE_ROWS}"
    words = f"SELECT unnest({words_sql('cell')}) AS word FROM ({sample})"
    ((n_words, repeated),) = table.connection.execute(
        f"SELECT (SELECT avg(len(regexp_extract_all(cell, '\\S*\\pL\\S*'))) FROM ({sample})), "
        f"(SELECT sum(n) FILTER (n > 1) / sum(n) FROM (SELECT count(*) AS n FROM ({words}) GROUP BY word))"
    ).fetchall()
    return (n_words or 0.0) >= MIN_WORDS and (repeated or 0.0) >= MIN_REPEATED


def _add_bag(
    schema: ProposedSchema, entity: ProposedEntity, table: TableProfile, column: ColumnProfile, name: str
) -> None:
    """Add the bag of the words of a column."""
    domain = NamePool(schema.names).reserve(*domain_names(name))
    words = f"SELECT unnest({words_sql(quoted(column.name))}) AS word FROM this"
    n_words = table.query_number(f"SELECT count(DISTINCT word) FROM ({words})")
    schema.domains.append(domain)
    entity.bags.append(ProposedBag(name, domain, n_words, is_text=True))
    qualified = f"{table.name}.{column.name}"
    schema.excluded_columns = [each for each in schema.excluded_columns if each[0] != qualified]
    reason = f"the words of the texts in {qualified}"
    schema.findings.append(TableFinding(table.name, f"bag {entity.name}.{name}", column.present, reason))
