"""From tables and what refers to what to a scheme: which are entities, relations and bags, with which attributes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from relcrf.data.dataset import quoted
from relcrf.data.store import literal
from relcrf.language.keywords import RESERVED_FOR_ATTRIBUTES, is_name
from relcrf.model.spec import fold_name
from relcrf.proposal.entity_candidates import EntityCandidate, find_references
from relcrf.proposal.manifest import ManifestBuilder
from relcrf.proposal.names import (
    SPLIT_COLUMNS,
    SPLIT_PARTS,
    NamePool,
    argument_name,
    attribute_name,
    camel_case,
    stem_name,
)
from relcrf.proposal.profile import MAX_ENUMERATION, ColumnProfile, NumberedColumns, TableProfile
from relcrf.proposal.schema import (
    ProposedAttribute,
    ProposedBag,
    ProposedEntity,
    ProposedRelation,
    ProposedSchema,
    RelationArgument,
    TableFinding,
)

AttributeSource = tuple[TableProfile, str | tuple[str, ...], str]
"""A table, its column or those of a vector, and the column of the attribute that is made of it."""

VALUE_COLUMNS = frozenset({"value", "holds", "truth", "label", "target", "y"})
"""What a column is called that says whether a tuple holds."""

MIN_PREFIX_LENGTH = 3
"""Letters of a prefix that says more than its table's name."""

LEVELS = 5
"""Values that ratings and measurements are cut into."""


def infer_schema(
    tables: Sequence[TableProfile], candidates: Sequence[EntityCandidate], manifest: ManifestBuilder
) -> ProposedSchema:
    """The scheme of some tables; the tables that it needs in another shape go to the manifest."""
    return _SchemaInference(tables, candidates, manifest).run()


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
        self.entities: dict[int, ProposedEntity] = {}

    @staticmethod
    def _is_smaller_part(table: TableProfile, tables: Sequence[TableProfile]) -> bool:
        """Whether it is a test part whose train part is there with the same columns."""
        same = [t for t in tables if t.raw.columns == table.raw.columns and t.name.lower() in SPLIT_PARTS]
        return table in same and table is not max(same, key=lambda t: t.rows)

    def run(self) -> ProposedSchema:
        for table in self.excluded_tables:
            reason = "another part with the same columns; stack them in the manifest, or predict on it"
            self._add_finding(table, "left out", reason)
        self.candidates = [t for t in self.candidates if t.table not in self.excluded_tables or t.table is None]
        vocabularies = self._find_vocabularies()
        things = [t for t in self.candidates if t not in vocabularies and self._can_declare(t)]
        for thing in vocabularies:
            assert thing.table is not None
            name = self.names.reserve(camel_case(thing.name))
            self.schema.domains.append(name)
            self.entities[id(thing)] = ProposedEntity(name, "", 0, "", "")  # a sort that has no entity
            named = ", ".join(f"{t.name}.{c}" for t, c in thing.references)
            self._add_finding(thing.table, f"names of domain {name}", f"nothing but names, of what {named} has")
        for thing in things:
            self._add_entity(thing)
        for table in self.tables:
            self._add_relations(table)
        self._find_split_columns()
        return self.schema

    def _add_finding(self, table: TableProfile, role: str, reason: str) -> None:
        self.schema.findings.append(TableFinding(table.name, role, table.rows, reason))

    def _exclude_column(self, table: TableProfile, column: str, reason: str) -> None:
        self.schema.excluded_columns.append((f"{table.name}.{column}", reason))

    def _can_declare(self, candidate: EntityCandidate) -> bool:
        """Whether the source lets a thing without a table or a key have one."""
        tables = [candidate.table] if candidate.table else [t for t, _ in candidate.references]
        is_named = fold_name(camel_case(candidate.name)) == fold_name(candidate.name)
        if candidate.table is not None and candidate.key is not None and is_name(candidate.key) and is_named:
            return True
        if self.manifest.can_query(*tables):
            return True
        for table in tables:
            self._add_finding(
                table, "left out", "its things have no table or no key, and this source takes no manifest"
            )
        return False

    def _find_vocabularies(self) -> list[EntityCandidate]:
        """Things that are nothing but names, and are mentioned beside others: values of a domain."""
        bare = []
        for thing in self.candidates:
            twice = any(len(thing.referring_columns(table)) > 1 for table, _ in thing.references)
            if (
                thing.table is None
                or thing.key is None
                or not thing.references
                or twice
                or thing.table.numbered_columns
            ):
                continue
            names = [c for c in thing.table.columns.values() if c.name != thing.key]
            alone = all(c.kind == "text" and c.distinct * 2 > c.rows for c in names)
            side = any(table.columns[column].is_unique for table, column in thing.references)
            if alone and not side:
                bare.append(thing)
        every = [find_references(table, self.candidates) for table in self.tables]
        kept = [refs[0][1] for refs in every if refs and all(thing in bare for _, thing in refs)]
        return [thing for thing in bare if thing not in kept]

    # Entities

    def _add_entity(self, candidate: EntityCandidate) -> None:
        home = candidate.table
        name = self.names.reserve(camel_case(candidate.name))
        sides = [
            (table, column)
            for table, column in candidate.references
            if self._is_attribute_table(candidate, table, column)
        ]
        tables = [*([home] if home else []), *(table for table, _ in sides)]
        size = self._count_distinct_keys(candidate) if home is None else home.rows
        entity = ProposedEntity(name, candidate.key or "id", size, candidate.reason, candidate.name)
        self.entities[id(candidate)] = entity
        used = NamePool([entity.key])
        wanted: list[AttributeSource] = []
        is_shaped = home is None or candidate.key is None or bool(sides)
        for table in tables:
            order = candidate.sequence if table is home else None
            skipped = {candidate.key} if table is home else {c for t, c in sides if t is table}
            skipped |= {c for c, other in find_references(table, self.candidates) if other is not candidate}
            for column in table.columns.values():
                if column.name in skipped.difference(order or ()):
                    continue
                place = len(table.raw.columns) - 1 - table.raw.columns.index(column.name)
                found = self._infer_attribute(table, column, size, place, sequence=order)
                if found is None:
                    continue
                plain = attribute_name(found.name)
                attribute = replace(
                    found, name=used.reserve(f"{plain}_" if plain in RESERVED_FOR_ATTRIBUTES else plain)
                )
                if fold_name(attribute.name) != fold_name(column.name) and not self.manifest.can_query(table):
                    reason = "the language has no such name, and this source takes no manifest"
                    self._exclude_column(table, column.name, reason)
                    continue
                wanted.append((table, column.name, attribute.name))
                entity.attributes.append(attribute)
            for block in table.numbered_columns:
                is_shaped |= self._add_numbered_columns(entity, candidate, table, block, size, used, wanted)
        renamed = {name: column for _, column, name in wanted if isinstance(column, str)}
        if candidate.sequence:
            by_column = {a.column: a.name for a in entity.attributes if home and a.table == home.name}
            entity.sequence = (by_column[candidate.sequence[0]], by_column[candidate.sequence[1]])
        splits = [c for t in tables for c in t.columns if c.lower() in SPLIT_COLUMNS]
        if home is not None and splits:
            entity.split_column = splits[0]
            wanted.append((home, splits[0], splits[0]))
        if is_shaped:
            self._add_entity_query(candidate, entity, sides, wanted)
        elif home is not None and self.manifest.can_query(home):
            key = entity.key if is_name(entity.key) else used.reserve("id")
            self.manifest.add_file(home, entity.name, {key: entity.key} | renamed)
            entity.key = key
        self.schema.entities.append(entity)
        for table, _ in sides:
            self._add_finding(table, f"attributes of {name}", "one row a thing")
        finding = TableFinding(home.name if home else "(none)", f"entity {name}", size, candidate.reason)
        self.schema.findings.append(finding)

    def _is_attribute_table(self, candidate: EntityCandidate, table: TableProfile, column: str) -> bool:
        """Return whether a table that mentions things has one row for each, with further attributes."""
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
        """Adds a vector, or what is to be predicted of many columns; whether the table needs another shape."""
        is_home = table is candidate.table
        if columns.n_missing or (not is_home and table.rows != size):
            if self._add_panel(entity, candidate, table, columns):
                return False
            self._exclude_column(
                table, f"{columns.prefix}0..{len(columns.columns) - 1}", "numbers with gaps make no vector"
            )
            return False
        if (
            columns.is_boolean
            and len(columns.columns) <= LEVELS * 4
            and stem_name(columns.prefix) in ("label", "y", "target", "class")
        ):
            for column in columns.columns:
                name = used.reserve(attribute_name(column))
                entity.attributes.append(ProposedAttribute(name, "bool", table.name, column, ("0", "1"), 2, 0, 0))
                sources.append((table, column, name))
            return False
        is_plain = is_home and is_name(columns.prefix) and columns.prefix not in table.raw.columns
        is_plain &= all(c.removeprefix(columns.prefix).removeprefix("_").isdigit() for c in columns.columns)
        if not is_plain and not self.manifest.can_query(table):
            reason = "columns of this form need a manifest, and this source takes none"
            self._exclude_column(table, f"{columns.prefix}...", reason)
            return False
        side = table.name.lower().removesuffix("_wide")
        short = not is_home and len(columns.prefix) < MIN_PREFIX_LENGTH and is_name(side) and side not in table.columns
        name = used.reserve(side if short else attribute_name(columns.prefix, "numbers"))
        entity.attributes.append(
            ProposedAttribute(name, "vector", table.name, columns.prefix, (), len(columns.columns))
        )
        sources.append((table, tuple(columns.columns), name))
        return not is_plain

    def _add_panel(
        self, entity: ProposedEntity, thing: EntityCandidate, table: TableProfile, block: NumberedColumns
    ) -> bool:
        """Numbers with gaps, of things and columns: a random relation of some levels. Whether that could be written."""
        if table is not thing.table or thing.key is None or not self.manifest.can_query(table) or not block.n_missing:
            return False
        item = self.names.reserve("Item", "Column", "Measure")
        relation = self.names.reserve(camel_case(f"{table.name}_value"), "Level")
        key = argument_name(thing.key)
        cells = " UNION ALL ".join(
            f"SELECT {quoted(thing.key)} AS {key}, {literal(column)} AS item, "
            f"CAST({quoted(column)} AS DOUBLE) AS number FROM {self.manifest.query_source(table)} WHERE {quoted(column)} IS NOT NULL"
            for column in block.columns
        )
        level = f"ntile({LEVELS}) OVER (PARTITION BY item ORDER BY number, {key})"
        self.manifest.add_query(
            relation,
            f"SELECT {key}, item, {level} AS value\nFROM ({cells})",
            f"the numbers of {len(block.columns)} columns, each cut into {LEVELS} levels that are equally frequent",
        )
        arguments = [
            RelationArgument(key, entity.name, entity, key, entity.size),
            RelationArgument("item", item, None, "item", len(block.columns)),
        ]
        self.schema.domains.append(item)
        rows = len(block.columns) * table.rows - block.n_missing
        reason = f"{len(block.columns)} numbered columns, {block.n_missing:,} of their cells are empty: asked, in {LEVELS} levels"
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
        """The attribute of a column, or why there is none."""
        missing = size - column.present
        attribute = ProposedAttribute(
            column.name, "", table.name, column.name, column.values, column.distinct, missing, position_from_end,
            column.low or 0.0, column.high or 0.0,
        )  # fmt: skip
        if sequence and column.name in sequence:
            return replace(attribute, type="integer" if column.kind == "whole" else "string")
        if column.name.lower() in SPLIT_COLUMNS:
            self._exclude_column(table, column.name, "divides the rows: use it with --split")
            return None
        if column.distinct < 2 or len(column.values) == 1:
            self._exclude_column(table, column.name, "one value, or none" if column.distinct else "always empty")
            return None
        if column.kind == "list":
            return replace(attribute, type="bag")
        if column.kind == "numbers":
            return replace(attribute, type="vector")
        if column.is_boolean:
            return replace(attribute, type="bool")
        repeats = column.present >= 2 * column.distinct
        if column.kind == "text" or (column.kind == "whole" and 0 < len(column.values) <= 12):
            if column.values and repeats:
                return replace(attribute, type="enumeration")
            if repeats:
                return replace(attribute, type="open")
            if column.kind == "text":
                self._exclude_column(table, column.name, "a text of its own for nearly every row: a name")
                return None
        if column.kind == "whole" and column.is_unique:
            self._exclude_column(table, column.name, "another number for every row: a name")
            return None
        types = {"whole": "integer", "real": "real", "date": "date"}
        return replace(attribute, type=types[column.kind])

    def _add_entity_query(
        self,
        candidate: EntityCandidate,
        entity: ProposedEntity,
        attribute_tables: list[tuple[TableProfile, str]],
        sources: list[AttributeSource],
    ) -> None:
        """Writes the query of an entity whose table is made of several, or has no key."""
        home = candidate.table
        alias = {id(home): "h"} | {id(table): f"s{k}" for k, (table, _) in enumerate(attribute_tables, start=1)}
        selected = []
        for table, columns, name in sources:
            a = alias[id(table)]
            if isinstance(columns, str):
                sql = f"{a}.{quoted(columns)}"
            else:
                sql = f"[{', '.join(f'CAST({a}.{quoted(c)} AS DOUBLE)' for c in columns)}]"
            selected.append(f"{sql} AS {quoted(name)}")
        if home is None:
            unions = "\nUNION ".join(
                f"SELECT {quoted(c)} AS id FROM {self.manifest.query_source(t)}" for t, c in candidate.references
            )
            source, key, shown = f"(SELECT DISTINCT id FROM ({unions}) WHERE id IS NOT NULL) AS h", "h.id", "h.id AS id"
        elif candidate.key is None:
            source, key = f"{self.manifest.query_source(home)} AS h", ""
            shown = "row_number() OVER () AS id"
            if candidate.sequence:
                group, place = (f"h.{quoted(c)}" for c in candidate.sequence)
                shown = f"CAST({group} AS VARCHAR) || ':' || CAST({place} AS VARCHAR) AS id"
        else:
            source, key = f"{self.manifest.query_source(home)} AS h", f"h.{quoted(candidate.key)}"
            entity.key = "id"
            shown = f"{key} AS id"
        lines = [f"SELECT {', '.join([shown, *selected])}", f"FROM {source}"]
        lines += [
            f"LEFT JOIN {self.manifest.query_source(table)} AS {alias[id(table)]} ON {alias[id(table)]}.{quoted(column)} = {key}"
            for table, column in attribute_tables
        ]
        self.manifest.add_query(entity.name, "\n".join(lines), f"a row for each {entity.name}")
        if home is not None and home.name in self.manifest.files:
            del self.manifest.files[home.name]

    # Relations and bags

    def _add_relations(self, table: TableProfile) -> None:
        own = next((thing for thing in self.candidates if thing.table is table), None)
        if own is not None:
            self._add_memberships(own, table)
            return
        if any(f.table == table.name for f in self.schema.findings):
            return
        refs = [(c, t) for c, t in find_references(table, self.candidates) if id(t) in self.entities]
        if not refs:
            self._add_finding(table, "left out", "no column refers to things, and no column tells its rows apart")
            return
        self._add_relation(table, refs)

    def _add_memberships(self, candidate: EntityCandidate, home: TableProfile) -> None:
        """Add a relation for each column of an entity's own table that refers to other things."""
        entity = self.entities.get(id(candidate))
        if entity is None:
            return
        for column, other in find_references(home, self.candidates):
            if candidate.key is None or not self.manifest.can_query(home):
                self._exclude_column(
                    home, column, "refers to other things, for which this source would need a manifest"
                )
            elif id(other) in self.entities:
                name = self.manifest.names.reserve(f"{home.name}_{attribute_name(column)}")
                key, own, rows = quoted(candidate.key), quoted(column), self.manifest.query_source(home)
                sql = f"SELECT {key} AS thing, {own} AS other FROM {rows} WHERE {own} IS NOT NULL"
                self.manifest.add_query(name, sql, f"which {other.name} a {candidate.name} belongs to")
                first = RelationArgument("thing", entity.name, entity, "thing", entity.size)
                arguments = [first, self._make_argument("other", other, "other", home.columns[column].distinct)]
                reason, present = f"{home.name}.{column} lies in {other.name}.{other.key}", home.columns[column].present
                link = ProposedRelation(self.names.reserve(camel_case(name)), arguments, present, reason, home.name)
                self.schema.relations.append(link)
                self._add_finding(home, f"relation {link.name}", reason)

    def _make_argument(self, name: str, candidate: EntityCandidate, column: str, distinct: int) -> RelationArgument:
        sort = self.entities[id(candidate)]
        return RelationArgument(name, sort.name, sort if sort.key else None, column, distinct)

    def _add_relation(self, table: TableProfile, refs: list[tuple[str, EntityCandidate]]) -> None:
        told = {c for c, _ in refs}
        refs = self._drop_implied(table, refs)
        columns = [c for c, _ in refs]
        rest = [c for c in table.columns.values() if c.name not in told and c.name.lower() not in SPLIT_COLUMNS]
        rest = [c for c in rest if c.distinct > 1 or len(refs) == 1]
        reason = "; ".join(f"{c} lies in {f'{t.table.name}.{t.key}' if t.table else t.name}" for c, t in refs)
        if len(refs) == 2 and refs[0][1] is refs[1][1] and not rest:
            a, b = (quoted(c) for c in columns)
            if not table.query_number(f"SELECT count(*) FROM this WHERE {a} <> {b}"):
                self._add_finding(table, "left out", f"says only that each {refs[0][1].name} is itself")
                return
        can_shape = self.manifest.can_query(table)
        used = NamePool()
        renamed = {used.reserve(argument_name(column)): column for column in columns}
        arguments = [
            self._make_argument(own, thing, column, table.columns[column].distinct)
            for own, (column, thing) in zip(renamed, refs, strict=True)
        ]
        attributes, value = [], None
        name = self.names.reserve(camel_case(table.name), camel_case(f"{table.name}_of"))
        tuples = table.count_distinct(columns)
        for one in rest:
            is_value = one.is_boolean and len(refs) > 1 and one.name.lower() in {*VALUE_COLUMNS, fold_name(table.name)}
            functional = tuples == table.count_distinct([*columns, one.name])
            if is_value and functional:
                value = "value"
                renamed["value"] = one.name
            elif len(refs) == 1 or not functional:
                if one.kind == "real" or one.distinct == table.rows or one.kind not in ("text", "whole"):
                    self._exclude_column(
                        table, one.name, "no value of its own for each tuple, and too many to be arguments"
                    )
                    continue
                own = used.reserve(argument_name(one.name))
                domain = self.names.reserve(camel_case(one.name), camel_case(f"{one.name}_value"))
                self.schema.domains.append(domain)
                renamed[own] = one.name
                arguments.append(RelationArgument(own, domain, None, one.name, one.distinct))
            else:
                found = self._infer_attribute(table, one, table.rows, 1, None)
                if found is not None and found.type in ("integer", "real", "bool", "enumeration", "open"):
                    attribute = replace(found, name=used.reserve(attribute_name(one.name)))
                    renamed[attribute.name] = one.name
                    attributes.append(attribute)
        misnamed = {new: old for new, old in renamed.items() if fold_name(new) != fold_name(old)}
        if can_shape:
            self.manifest.add_file(table, name, misnamed)
        elif misnamed:
            reason = "its columns have names that the language has not, and this source takes no manifest"
            self._add_finding(table, "left out", reason)
            return
        if len(refs) == 1 and len(arguments) == 2 and not attributes and self._add_as_bag(table, arguments):
            return
        if fold_name(name) != fold_name(table.name) and not can_shape:
            self._add_finding(table, "left out", f"its name is that of something else: {camel_case(table.name)}")
            return
        link = ProposedRelation(name, arguments, table.rows, reason, table.name, attributes, value, profile=table)
        self._detect_symmetry(link)
        if value is not None and can_shape:
            self.manifest.open_tables.add(table.name if fold_name(name) == fold_name(table.name) else name)
            self.manifest.is_needed = True
        self.schema.relations.append(link)
        self._add_finding(table, f"relation {name}" if value is None else f"random relation {name}", reason)

    def _drop_implied(
        self, table: TableProfile, refs: list[tuple[str, EntityCandidate]]
    ) -> list[tuple[str, EntityCandidate]]:
        """References without those that two others of one kind tell already: the molecule of a bond of atoms."""
        doubled = [(c, t) for c, t in refs if sum(other is t for _, other in refs) == 2]
        if len(doubled) != 2 or len(refs) == 2:
            return refs
        pair = [c for c, _ in doubled]
        told = [c for c, _ in refs if c not in pair and table.count_distinct(pair) == table.count_distinct([*pair, c])]
        for column in told:
            self._exclude_column(table, column, f"{' and '.join(pair)} tell it")
        return [(c, t) for c, t in refs if c not in told]

    def _add_as_bag(self, table: TableProfile, arguments: list[RelationArgument]) -> bool:
        """Makes it a bag where the table's name says so, as `page_word` does."""
        (owner, value) = arguments
        if owner.entity is None or not table.name.lower().startswith(owner.entity.table.lower() + "_"):
            return False
        what = table.name[len(owner.entity.table) + 1 :]
        if stem_name(what) != stem_name(value.column) or not is_name(table.name) or value.entity is not None:
            return False
        name = value.column if value.column.endswith("s") else f"{value.column}s"
        if any(fold_name(a.name) == fold_name(name) for a in owner.entity.attributes):
            return False
        owner.entity.bags.append(ProposedBag(name, value.sort, value.distinct))
        reason = f"{owner.column} lies in {owner.entity.table}; many values a thing"
        self._add_finding(table, f"bag {owner.entity.name}.{name}", reason)
        return True

    def _detect_symmetry(self, relation: ProposedRelation) -> None:
        """Looks whether pairs of one entity stand in both orders, and whether some are pairs of a thing with itself."""
        if len(relation.arguments) < 2 or relation.profile is None or relation.arguments[0].entity is None:
            return
        twice = [x for x in relation.arguments if x.entity and len(relation.arguments_of(x.entity)) == 2]
        if len(twice) != 2:
            return
        a, b = (quoted(x.column) for x in twice)
        others = "".join(
            f" AND t.{quoted(x.column)} = s.{quoted(x.column)}" for x in relation.arguments if x not in twice
        )
        table = relation.profile
        same = table.query_number(f"SELECT count(*) FROM this WHERE {a} = {b}")
        back = table.query_number(
            f"SELECT count(*) FROM this AS t WHERE t.{a} <> t.{b} AND EXISTS "
            f"(SELECT 1 FROM this AS s WHERE s.{a} = t.{b} AND s.{b} = t.{a}{others})"
        )
        relation.is_symmetric = back >= 0.98 * (table.rows - same) > 0
        relation.is_irreflexive = same == 0

    # Splits

    def _find_split_columns(self) -> None:
        """Columns of few values in which both ends of every link agree: what to split by, and no evidence."""
        for entity in self.schema.entities:
            home = next((t for t in self.tables if t.name == entity.table), None)
            binary = [k for k in self.schema.relations if len(k.arguments_of(entity)) == 2 == len(k.arguments)]
            links = [k for k in binary if k.profile and k.value_column is None]
            if home is None or not links or entity.key not in home.columns:
                continue
            for attribute in list(entity.attributes):
                if (
                    attribute.type not in ("enumeration", "open")
                    or attribute.missing
                    or attribute.distinct > MAX_ENUMERATION
                ):
                    continue
                if all(self._never_crosses(home, entity.key, attribute.column, link, entity) for link in links):
                    entity.attributes.remove(attribute)
                    entity.split_column = entity.split_column or attribute.name
                    self._exclude_column(home, attribute.column, "no link crosses it: use it with --split")

    @staticmethod
    def _never_crosses(
        home: TableProfile, key: str, column: str, relation: ProposedRelation, entity: ProposedEntity
    ) -> bool:
        assert relation.profile is not None
        a, b = (quoted(x.column) for x in relation.arguments_of(entity))
        k, c = quoted(key), quoted(column)
        crossing = (
            f"SELECT count(*) FROM {relation.profile.scan} AS l JOIN this AS x ON x.{k} = l.{a} "
            f"JOIN this AS y ON y.{k} = l.{b} WHERE x.{c} <> y.{c}"
        )
        return home.query_number(crossing) == 0
