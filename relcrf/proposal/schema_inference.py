"""Inference of a schema (entity types, relations, bags and attributes) from table profiles and references."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from relcrf.data.dataset import quoted
from relcrf.data.store import literal
from relcrf.language.keywords import RESERVED_FOR_ATTRIBUTES, is_name
from relcrf.model.spec import fold_name
from relcrf.proposal.entity_candidates import EntityCandidate, find_references
from relcrf.proposal.event_tables import EventTable
from relcrf.proposal.manifest import ManifestBuilder
from relcrf.proposal.names import (
    SPLIT_COLUMNS,
    SPLIT_PARTS,
    NamePool,
    argument_name,
    attribute_name,
    camel_case,
    domain_names,
    names_code,
    stem_name,
)
from relcrf.proposal.profile import ColumnProfile, NumberedColumns, TableProfile
from relcrf.proposal.schema import (
    ProposedAttribute,
    ProposedBag,
    ProposedEntity,
    ProposedRelation,
    ProposedSchema,
    RelationArgument,
    TableFinding,
    detect_symmetry,
)

AttributeSource = tuple[TableProfile, str | tuple[str, ...], str]
"""The source of an attribute: a table, a column (or the columns of a vector), and the name of the attribute."""

VALUE_COLUMNS = frozenset({"value", "holds", "truth", "label", "target", "y"})
"""Usual names of columns with the truth values of tuples."""

MIN_PREFIX_LENGTH = 3
"""Minimum length of a column prefix that becomes the name of an attribute; a prefix such as `x` is not informative."""

LEVELS = 5
"""Number of levels into which ratings and measurements are divided."""


def infer_schema(
    tables: Sequence[TableProfile],
    candidates: Sequence[EntityCandidate],
    manifest: ManifestBuilder,
    events: Sequence[EventTable] = (),
) -> ProposedSchema:
    """Infer the schema of tables without the event tables; queries that reshape tables are added to `manifest`."""
    event_tables = [event.table for event in events]
    tables = [table for table in tables if table not in event_tables]
    schema = _SchemaInference(tables, [c for c in candidates if c.table not in event_tables], manifest).run()
    schema.candidates = list(candidates)
    return schema


class _SchemaInference:
    def __init__(
        self, tables: Sequence[TableProfile], candidates: Sequence[EntityCandidate], manifest: ManifestBuilder
    ) -> None:
        self.tables = [t for t in tables if not self._is_smaller_part(t, tables)]
        self.candidates = list(candidates)
        self.manifest = manifest
        self.schema = ProposedSchema()
        self.excluded_tables = [t for t in tables if t not in self.tables]
        manifest.names = NamePool(t.name for t in tables)
        self.names = NamePool()
        self.entities = self.schema.types

    @staticmethod
    def _is_smaller_part(table: TableProfile, tables: Sequence[TableProfile]) -> bool:
        """Return True if a table is named like a split part, such as `test`, and a larger part has the same columns."""
        same = [t for t in tables if t.raw.columns == table.raw.columns and t.name.lower() in SPLIT_PARTS]
        return table in same and table is not max(same, key=lambda t: t.rows)

    def run(self) -> ProposedSchema:
        for table in self.excluded_tables:
            reason = "smaller part of a split; combine it with the larger part in the manifest, or predict on it"
            self._add_finding(table, "left out", reason)
        self.candidates = [t for t in self.candidates if t.table not in self.excluded_tables or t.table is None]
        vocabularies = self._find_vocabularies()
        candidates = [t for t in self.candidates if t not in vocabularies and self._can_declare(t)]
        for candidate in vocabularies:
            assert candidate.table is not None
            name = self.names.reserve(camel_case(candidate.name))
            self.schema.domains.append(name)
            self.entities[id(candidate)] = ProposedEntity(name, "", 0, "", "")  # an empty key marks a domain
            users = ", ".join(f"{t.name}.{c}" for t, c in candidate.references)
            self._add_finding(candidate.table, f"names of domain {name}", f"contains only names; referenced by {users}")
        for candidate in candidates:
            self._add_entity(candidate)
        for table in self.tables:
            self._add_relations(table)
        return self.schema

    def _add_finding(self, table: TableProfile, role: str, reason: str) -> None:
        self.schema.findings.append(TableFinding(table.name, role, table.rows, reason))

    def _exclude_column(self, table: TableProfile, column: str, reason: str) -> None:
        self.schema.excluded_columns.append((f"{table.name}.{column}", reason))

    def _can_declare(self, candidate: EntityCandidate) -> bool:
        """Return True if a table with a key and valid names exists or a query can build one; otherwise, add a finding."""
        tables = [candidate.table] if candidate.table else [t for t, _ in candidate.references]
        is_named = fold_name(camel_case(candidate.name)) == fold_name(candidate.name)
        if candidate.table is not None and candidate.key is not None and is_name(candidate.key) and is_named:
            return True
        if self.manifest.can_query(*tables):
            return True
        for table in tables:
            reason = "its entities have no table or no key, and this source does not support a manifest"
            self._add_finding(table, "left out", reason)
        return False

    def _find_vocabularies(self) -> list[EntityCandidate]:
        """Return the candidates to declare as domains; their tables only list names to which other tables refer."""
        vocabularies = []
        for candidate in self.candidates:
            is_paired = any(len(candidate.referring_columns(table)) > 1 for table, _ in candidate.references)
            if (
                candidate.table is None
                or candidate.key is None
                or not candidate.references
                or is_paired
                or candidate.table.numbered_columns
            ):
                continue
            names = [c for c in candidate.table.columns.values() if c.name != candidate.key]
            has_only_names = all(c.kind == "text" and c.distinct * 2 > c.rows for c in names)
            has_attribute_table = any(table.columns[column].is_unique for table, column in candidate.references)
            if has_only_names and not has_attribute_table:
                vocabularies.append(candidate)
        all_references = [find_references(table, self.candidates) for table in self.tables]
        entities = [
            refs[0][1] for refs in all_references if refs and all(candidate in vocabularies for _, candidate in refs)
        ]
        return [candidate for candidate in vocabularies if candidate not in entities]

    # Entities

    def _add_entity(self, candidate: EntityCandidate) -> None:
        own_table = candidate.table
        name = self.names.reserve(camel_case(candidate.name))
        attribute_tables = [
            (table, column)
            for table, column in candidate.references
            if self._is_attribute_table(candidate, table, column)
        ]
        tables = [*([own_table] if own_table else []), *(table for table, _ in attribute_tables)]
        size = self._count_distinct_keys(candidate) if own_table is None else own_table.rows
        entity = ProposedEntity(name, candidate.key or "id", size, candidate.reason, candidate.name)
        self.entities[id(candidate)] = entity
        used = NamePool([entity.key])
        sources: list[AttributeSource] = []
        needs_query = own_table is None or candidate.key is None or bool(attribute_tables)
        for table in tables:
            sequence = candidate.sequence if table is own_table else None
            skipped = {candidate.key} if table is own_table else {c for t, c in attribute_tables if t is table}
            skipped |= {c for c, other in find_references(table, self.candidates) if other is not candidate}
            for column in table.columns.values():
                if column.name in skipped.difference(sequence or ()):
                    continue
                position = len(table.raw.columns) - 1 - table.raw.columns.index(column.name)
                inferred = self._infer_attribute(table, column, size, position, sequence=sequence)
                if inferred is None:
                    continue
                valid_name = attribute_name(inferred.name)
                attribute = replace(
                    inferred,
                    name=used.reserve(f"{valid_name}_" if valid_name in RESERVED_FOR_ATTRIBUTES else valid_name),
                    scan=table.scan,
                    key=candidate.key_in(table),
                )
                if fold_name(attribute.name) != fold_name(column.name) and not self.manifest.can_query(table):
                    reason = "its name is not valid in the language, and this source does not support a manifest"
                    self._exclude_column(table, column.name, reason)
                    continue
                sources.append((table, column.name, attribute.name))
                if column.kind == "list":
                    domain = self.names.reserve(*domain_names(attribute.name))
                    self.schema.domains.append(domain)
                    entity.bags.append(ProposedBag(attribute.name, domain, table.count_elements(column.name)))
                    continue
                entity.attributes.append(attribute)
            for columns in table.numbered_columns:
                needs_query |= self._add_numbered_columns(entity, candidate, table, columns, size, used, sources)
        renamed = {name: column for _, column, name in sources if isinstance(column, str)}
        if candidate.sequence:
            by_column = {a.column: a.name for a in entity.attributes if own_table and a.table == own_table.name}
            entity.sequence = (by_column[candidate.sequence[0]], by_column[candidate.sequence[1]])
        split_columns = [c for t in tables for c in t.columns if c.lower() in SPLIT_COLUMNS]
        if own_table is not None and split_columns:
            entity.split_column = split_columns[0]
            sources.append((own_table, split_columns[0], split_columns[0]))
        if needs_query or (own_table is not None and self.manifest.can_query(own_table)):
            entity.key = entity.key if is_name(entity.key) else used.reserve("id")
        if needs_query:
            self._add_entity_query(candidate, entity, attribute_tables, sources)
        elif own_table is not None and self.manifest.can_query(own_table):
            self.manifest.add_file(own_table, entity.name, {entity.key: candidate.key or "id"} | renamed)
        self.schema.entities.append(entity)
        for table, _ in attribute_tables:
            self._add_finding(table, f"attributes of {name}", "one row per entity")
        finding = TableFinding(own_table.name if own_table else "(none)", f"entity {name}", size, candidate.reason)
        self.schema.findings.append(finding)

    def _is_attribute_table(self, candidate: EntityCandidate, table: TableProfile, column: str) -> bool:
        """Return True if a table that refers to a candidate has at most one row per entity and contains attributes."""
        return (
            table in self.tables
            and table.columns[column].is_unique
            and len(find_references(table, self.candidates)) == 1
            and bool(
                table.numbered_columns or [c for c in table.columns if c != column and c.lower() not in SPLIT_COLUMNS]
            )
            and not any(other.table is table for other in self.candidates)
            and self.manifest.can_query(table, *([candidate.table] if candidate.table else []))
        )

    @staticmethod
    def _count_distinct_keys(candidate: EntityCandidate) -> int:
        unions = " UNION ".join(f"SELECT {quoted(c)} AS id FROM {t.scan}" for t, c in candidate.references)
        (table, _), *_ = candidate.references
        return table.query_number(f"SELECT count(*) FROM ({unions}) WHERE id IS NOT NULL")

    def _add_numbered_columns(
        self,
        entity: ProposedEntity,
        candidate: EntityCandidate,
        table: TableProfile,
        columns: NumberedColumns,
        size: int,
        used: NamePool,
        sources: list[AttributeSource],
    ) -> bool:
        """Add a vector, labels or a random relation for numbered columns; return True if this requires a query."""
        is_home = table is candidate.table
        if columns.n_missing or (not is_home and table.rows != size):
            if self._add_random_relation_for_columns(entity, candidate, table, columns):
                return False
            reason = "numbers with missing values do not form a vector"
            self._exclude_column(table, f"{columns.prefix}0..{len(columns.columns) - 1}", reason)
            return False
        if (
            columns.is_boolean
            and len(columns.columns) <= LEVELS * 4
            and stem_name(columns.prefix) in ("label", "y", "target", "class")
        ):
            for column in columns.columns:
                name = used.reserve(attribute_name(column))
                label = ProposedAttribute(name, "bool", table.name, column, ("0", "1"), 2, 0, 0)
                entity.attributes.append(replace(label, scan=table.scan, key=candidate.key_in(table)))
                sources.append((table, column, name))
            return False
        is_direct = is_home and is_name(columns.prefix) and columns.prefix not in table.raw.columns
        is_direct &= all(c.removeprefix(columns.prefix).removeprefix("_").isdigit() for c in columns.columns)
        if not is_direct and not self.manifest.can_query(table):
            reason = "columns of this form need a manifest, which this source does not support"
            self._exclude_column(table, f"{columns.prefix}...", reason)
            return False
        table_stem = table.name.lower().removesuffix("_wide")
        use_table_name = (
            not is_home
            and len(columns.prefix) < MIN_PREFIX_LENGTH
            and is_name(table_stem)
            and table_stem not in table.columns
        )
        name = used.reserve(table_stem if use_table_name else attribute_name(columns.prefix, "numbers"))
        values = ("0", "1") if columns.is_boolean else ()
        entity.attributes.append(
            ProposedAttribute(name, "vector", table.name, columns.prefix, values, len(columns.columns))
        )
        sources.append((table, tuple(columns.columns), name))
        return not is_direct

    def _add_random_relation_for_columns(
        self, entity: ProposedEntity, candidate: EntityCandidate, table: TableProfile, columns: NumberedColumns
    ) -> bool:
        """Convert columns with missing numbers to a random relation (entity, column); return False if impossible."""
        if (
            table is not candidate.table
            or candidate.key is None
            or not self.manifest.can_query(table)
            or not columns.n_missing
        ):
            return False
        item = self.names.reserve("Item", "Column", "Measure")
        relation = self.names.reserve(camel_case(f"{table.name}_value"), "Level")
        key = argument_name(candidate.key)
        source = self.manifest.query_source(table)
        cells = " UNION ALL ".join(
            f"SELECT {quoted(candidate.key)} AS {key}, {literal(column)} AS item, "
            f"CAST({quoted(column)} AS DOUBLE) AS number FROM {source} WHERE {quoted(column)} IS NOT NULL"
            for column in columns.columns
        )
        level = f"ntile({LEVELS}) OVER (PARTITION BY item ORDER BY number, {key})"
        self.manifest.add_query(
            relation,
            f"SELECT {key}, item, {level} AS value\nFROM ({cells})",
            f"the numbers of {len(columns.columns)} columns, each divided into {LEVELS} equally frequent levels",
        )
        arguments = [
            RelationArgument(key, entity.name, entity, key, entity.size),
            RelationArgument("item", item, None, "item", len(columns.columns)),
        ]
        self.schema.domains.append(item)
        rows = len(columns.columns) * table.rows - columns.n_missing
        reason = (
            f"{len(columns.columns)} numbered columns, in {LEVELS} levels; {columns.n_missing:,} empty cells to predict"
        )
        self.schema.relations.append(
            ProposedRelation(relation, arguments, rows, reason, table.name, value_column="value", levels=LEVELS)
        )
        self.schema.findings.append(TableFinding(table.name, f"random relation {relation}", rows, reason))
        return True

    def _infer_attribute(
        self,
        table: TableProfile,
        column: ColumnProfile,
        size: int,
        position_from_end: int,
        sequence: tuple[str, str] | None,
    ) -> ProposedAttribute | None:
        """Return the attribute of a column. If the column cannot be used, record the reason and return None."""
        missing = size - column.present
        attribute = ProposedAttribute(
            column.name, "", table.name, column.name, column.values, column.distinct, missing, position_from_end,
            column.low or 0.0, column.high or 0.0,
        )  # fmt: skip
        if sequence and column.name in sequence:
            return replace(attribute, type="integer" if column.kind == "whole" else "string")
        if column.name.lower() in SPLIT_COLUMNS:
            self._exclude_column(table, column.name, "a split of the rows: use it with --split")
            return None
        if column.unusable_reason:
            self._exclude_column(table, column.name, column.unusable_reason)
            return None
        if column.kind == "list":
            return replace(attribute, type="bag")
        if column.kind == "numbers":
            return replace(attribute, type="vector")
        if column.is_boolean:
            return replace(attribute, type="bool")
        repeats = column.present >= 2 * column.distinct
        is_code = column.kind == "whole" and repeats and (0 < len(column.values) <= 12 or names_code(column.name))
        if column.kind == "text" or is_code:
            if column.values and repeats:
                return replace(attribute, type="enumeration")
            if repeats:
                return replace(attribute, type="open")
            if column.kind == "text":
                few = f"only {column.present:,} cells have a value, with {column.distinct:,} different texts"
                reason = "nearly every row has a different text, such as a name"
                self._exclude_column(table, column.name, few if 2 * column.present < column.rows else reason)
                return None
        if column.kind == "whole" and column.is_unique:
            self._exclude_column(table, column.name, "every row has a different number, such as an identifier")
            return None
        types = {"whole": "integer", "date": "datetime"}  # dates cannot be subtracted
        return replace(attribute, type=types.get(column.kind, column.kind))

    def _add_entity_query(
        self,
        candidate: EntityCandidate,
        entity: ProposedEntity,
        attribute_tables: list[tuple[TableProfile, str]],
        sources: list[AttributeSource],
    ) -> None:
        """Add a query that builds the table of an entity type: it adds a key, or joins several tables."""
        own_table = candidate.table
        alias = {id(own_table): "h"} | {id(table): f"s{k}" for k, (table, _) in enumerate(attribute_tables, start=1)}
        selected = []
        for table, columns, name in sources:
            a = alias[id(table)]
            if isinstance(columns, str):
                sql = f"{a}.{quoted(columns)}"
            else:
                sql = f"[{', '.join(f'CAST({a}.{quoted(c)} AS DOUBLE)' for c in columns)}]"
            selected.append(f"{sql} AS {quoted(name)}")
        if own_table is None:
            unions = "\nUNION ".join(
                f"SELECT {quoted(c)} AS id FROM {self.manifest.query_source(t)}" for t, c in candidate.references
            )
            source, key, key_column = (
                f"(SELECT DISTINCT id FROM ({unions}) WHERE id IS NOT NULL) AS h",
                "h.id",
                "h.id AS id",
            )
        elif candidate.key is None:
            source, key = f"{self.manifest.query_source(own_table)} AS h", ""
            key_column = "row_number() OVER () AS id"
            if candidate.sequence:
                group, position = (f"h.{quoted(c)}" for c in candidate.sequence)
                key_column = f"CAST({group} AS VARCHAR) || ':' || CAST({position} AS VARCHAR) AS id"
        else:
            source, key = f"{self.manifest.query_source(own_table)} AS h", f"h.{quoted(candidate.key)}"
            key_column = f"{key} AS {quoted(candidate.key)}"
        lines = [f"SELECT {', '.join([key_column, *selected])}", f"FROM {source}"]
        lines += [
            f"LEFT JOIN {self.manifest.query_source(table)} AS {alias[id(table)]} ON {alias[id(table)]}.{quoted(column)} = {key}"
            for table, column in attribute_tables
        ]
        comment, renamed = f"one row for each {entity.name} entity", {entity.key: candidate.key or entity.key}
        self.manifest.add_query(entity.name, "\n".join(lines), comment, columns=renamed)
        if own_table is not None and own_table.name in self.manifest.files:
            del self.manifest.files[own_table.name]

    # Relations and bags

    def _add_relations(self, table: TableProfile) -> None:
        candidate = next((c for c in self.candidates if c.table is table), None)
        if candidate is not None:
            self._add_memberships(candidate, table)
            return
        if any(f.table == table.name for f in self.schema.findings):
            return
        refs = [(c, t) for c, t in find_references(table, self.candidates) if id(t) in self.entities]
        if not refs:
            self._add_finding(table, "left out", "no column refers to entities, and no column identifies its rows")
            return
        self._add_relation(table, refs)

    def _add_memberships(self, candidate: EntityCandidate, table: TableProfile) -> None:
        """Add a relation for each column of an entity table that refers to other entities."""
        entity = self.entities.get(id(candidate))
        if entity is None:
            return
        for column, other in find_references(table, self.candidates):
            if candidate.key is None or not self.manifest.can_query(table):
                reason = "refers to other entities; this requires a manifest, which this source does not support"
                self._exclude_column(table, column, reason)
            elif id(other) in self.entities:
                name = self.manifest.names.reserve(f"{attribute_name(table.name)}_{attribute_name(column)}")
                key, reference, rows = quoted(candidate.key), quoted(column), self.manifest.query_source(table)
                sql = f"SELECT {key} AS member, {reference} AS other FROM {rows} WHERE {table.present_sql(column)}"
                comment, link = f"the {other.name} of each {candidate.name}", f"{table.name}.{column}"
                self.manifest.add_query(name, sql, comment, link)
                first = RelationArgument("member", entity.name, entity, "member", entity.size)
                arguments = [first, self._make_argument("other", other, "other", table.columns[column].distinct)]
                present = table.columns[column].present
                reason = f"{link} refers to {other.name}.{other.key}"
                relation_name = self.names.reserve(camel_case(name))
                relation = ProposedRelation(relation_name, arguments, present, reason, table.name)
                self.schema.relations.append(relation)
                self._add_finding(table, f"relation {relation.name}", reason)

    def _make_argument(self, name: str, candidate: EntityCandidate, column: str, distinct: int) -> RelationArgument:
        entity = self.entities[id(candidate)]
        return RelationArgument(name, entity.name, entity if entity.key else None, column, distinct)

    def _add_relation(self, table: TableProfile, refs: list[tuple[str, EntityCandidate]]) -> None:
        reference_columns = {c for c, _ in refs}
        refs = self._drop_implied(table, refs)
        columns = [c for c, _ in refs]
        other_columns = [
            c for c in table.columns.values() if c.name not in reference_columns and c.name.lower() not in SPLIT_COLUMNS
        ]
        constant = [c for c in other_columns if c.distinct < 2 and len(refs) > 1]
        other_columns = [c for c in other_columns if c not in constant]
        for column in constant:
            self._exclude_column(table, column.name, column.unusable_reason)
        for group in table.numbered_columns:
            self._exclude_column(table, f"{group.prefix}...", "proposed relations have no attributes of type vector")
        reason = "; ".join(f"{c} refers to {f'{t.table.name}.{t.key}' if t.table else t.name}" for c, t in refs)
        if len(refs) == 2 and refs[0][1] is refs[1][1] and not other_columns:
            a, b = (quoted(c) for c in columns)
            if not table.query_number(f"SELECT count(*) FROM this WHERE {a} <> {b}"):
                self._add_finding(table, "left out", f"contains only pairs of a {refs[0][1].name} with itself")
                return
        can_query = self.manifest.can_query(table)
        used = NamePool()
        renamed = {used.reserve(argument_name(column)): column for column in columns}
        arguments = [
            self._make_argument(argument, candidate, column, table.columns[column].distinct)
            for argument, (column, candidate) in zip(renamed, refs, strict=True)
        ]
        attributes, value_column = [], None
        name = self.names.reserve(camel_case(table.name), camel_case(f"{table.name}_of"))
        tuples = table.count_distinct(columns)
        for column in other_columns:
            is_value = (
                column.is_boolean and len(refs) > 1 and column.name.lower() in {*VALUE_COLUMNS, fold_name(table.name)}
            )
            is_functional = tuples == table.count_distinct([*columns, column.name])
            if is_value and is_functional:
                value_column = renamed["value"] = column.name
            elif len(refs) == 1 or not is_functional:
                if column.present < column.rows:
                    self._exclude_column(table, column.name, "missing in some rows, which an argument cannot be")
                    continue
                if column.kind == "real" or column.distinct == table.rows or column.kind not in ("text", "whole"):
                    why = "not determined by the referenced entities, and has too many values for an argument"
                    self._exclude_column(table, column.name, why)
                    continue
                argument = used.reserve(argument_name(column.name))
                domain = self.names.reserve(camel_case(column.name), camel_case(f"{column.name}_value"))
                self.schema.domains.append(domain)
                renamed[argument] = column.name
                arguments.append(RelationArgument(argument, domain, None, column.name, column.distinct))
            else:
                inferred = self._infer_attribute(table, column, table.rows, 1, None)
                if inferred is not None and not (inferred.is_number or inferred.is_discrete):
                    why = f"proposed relations have no attributes of type {inferred.type}"
                    self._exclude_column(table, column.name, why)
                elif inferred is not None:
                    attribute = replace(inferred, name=used.reserve(attribute_name(column.name)))
                    renamed[attribute.name] = column.name
                    attributes.append(attribute)
        renamed_columns = {new: old for new, old in renamed.items() if fold_name(new) != fold_name(old)}
        if can_query:
            self.manifest.add_file(table, name, renamed_columns)
        elif renamed_columns:
            reason = "its column names are not valid in the language, and this source does not support a manifest"
            self._add_finding(table, "left out", reason)
            return
        if len(refs) == 1 and len(arguments) == 2 and not attributes and self._add_as_bag(table, arguments):
            return
        if fold_name(name) != fold_name(table.name) and not can_query:
            self._add_finding(table, "left out", f"its name is already used: {camel_case(table.name)}")
            return
        relation = ProposedRelation(
            name, arguments, table.rows, reason, table.name, attributes, value_column, profile=table
        )
        detect_symmetry(relation)
        if value_column is not None and can_query:
            self.manifest.open_tables.add(table.name if fold_name(name) == fold_name(table.name) else name)
            self.manifest.is_needed = True
        self.schema.relations.append(relation)
        self._add_finding(table, f"relation {name}" if value_column is None else f"random relation {name}", reason)

    def _drop_implied(
        self, table: TableProfile, refs: list[tuple[str, EntityCandidate]]
    ) -> list[tuple[str, EntityCandidate]]:
        """Drop references that two other references determine: the two atoms of a bond determine the molecule."""
        paired = [(c, t) for c, t in refs if sum(other is t for _, other in refs) == 2]
        if len(paired) != 2 or len(refs) == 2:
            return refs
        pair = [c for c, _ in paired]
        implied = [
            c for c, _ in refs if c not in pair and table.count_distinct(pair) == table.count_distinct([*pair, c])
        ]
        for column in implied:
            self._exclude_column(table, column, f"determined by {' and '.join(pair)}")
        return [(c, t) for c, t in refs if c not in implied]

    def _add_as_bag(self, table: TableProfile, arguments: list[RelationArgument]) -> bool:
        """If the table is named after an entity table and a value column (`page_word`), add a bag and return True."""
        (owner, value) = arguments
        if owner.entity is None or not table.name.lower().startswith(owner.entity.table.lower() + "_"):
            return False
        value_name = table.name[len(owner.entity.table) + 1 :]
        if stem_name(value_name) != stem_name(value.column) or not is_name(table.name) or value.entity is not None:
            return False
        name = value.column if value.column.endswith("s") else f"{value.column}s"
        if any(fold_name(a.name) == fold_name(name) for a in owner.entity.attributes):
            return False
        owner.entity.bags.append(ProposedBag(name, value.type_name, value.distinct))
        reason = f"{owner.column} refers to {owner.entity.table}; several values per entity"
        self._add_finding(table, f"bag {owner.entity.name}.{name}", reason)
        return True
