"""From tables and what refers to what to a scheme: which are entities, relations and bags, with which attributes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from relcrf.data.dataset import quoted
from relcrf.data.store import literal
from relcrf.language.words import BEFORE_NAMES, is_name
from relcrf.model.spec import folded
from relcrf.proposal.manifest import Shaping
from relcrf.proposal.names import PARTS, SPLITS, Names, camel, sayable, stem, word
from relcrf.proposal.profile import FEW, ColumnProfile, NumberedColumns, Profile
from relcrf.proposal.scheme import Argument, Finding, Link, ProposedAttribute, ProposedBag, ProposedEntity, Scheme
from relcrf.proposal.things import EntityCandidate, references

Wanted = tuple[Profile, str | tuple[str, ...], str]
"""A table, its column or those of a vector, and the column of the attribute that is made of it."""

VALUES = frozenset({"value", "holds", "truth", "label", "target", "y"})
"""What a column is called that says whether a tuple holds."""

WORTHY = 3
"""Letters of a prefix that says more than its table's name."""

LEVELS = 5
"""Values that ratings and measurements are cut into."""


def survey(tables: Sequence[Profile], things: Sequence[EntityCandidate], shaping: Shaping) -> Scheme:
    """The scheme of some tables; the tables that it needs in another shape go to the manifest."""
    return _Survey(tables, things, shaping).run()


class _Survey:
    def __init__(self, tables: Sequence[Profile], things: Sequence[EntityCandidate], shaping: Shaping) -> None:
        self.tables = [t for t in tables if not self._is_second_part(t, tables)]
        self.things = list(things)
        self.shaping = shaping
        self.scheme = Scheme()
        self.left_out = [t for t in tables if t not in self.tables]
        shaping.names = Names(t.name for t in tables)
        self.names = Names()
        self.entities: dict[int, ProposedEntity] = {}

    @staticmethod
    def _is_second_part(table: Profile, tables: Sequence[Profile]) -> bool:
        """Whether it is a test part whose train part is there with the same columns."""
        same = [t for t in tables if t.raw.columns == table.raw.columns and t.name.lower() in PARTS]
        return table in same and table is not max(same, key=lambda t: t.rows)

    def run(self) -> Scheme:
        for table in self.left_out:
            reason = "another part with the same columns; stack them in the manifest, or predict on it"
            self._found(table, "left out", reason)
        self.things = [t for t in self.things if t.home not in self.left_out or t.home is None]
        vocabularies = self._vocabularies()
        things = [t for t in self.things if t not in vocabularies and self._can_be(t)]
        for thing in vocabularies:
            assert thing.home is not None
            name = self.names.free(camel(thing.name))
            self.scheme.domains.append(name)
            self.entities[id(thing)] = ProposedEntity(name, "", 0, "", "")  # a sort that has no entity
            named = ", ".join(f"{t.name}.{c}" for t, c in thing.mentions)
            self._found(thing.home, f"names of domain {name}", f"nothing but names, of what {named} has")
        for thing in things:
            self._entity(thing)
        for table in self.tables:
            self._relations_of(table)
        self._split_columns()
        return self.scheme

    def _found(self, table: Profile, taken_for: str, reason: str) -> None:
        self.scheme.findings.append(Finding(table.name, taken_for, table.rows, reason))

    def _without(self, table: Profile, column: str, reason: str) -> None:
        self.scheme.left_out.append((f"{table.name}.{column}", reason))

    def _can_be(self, thing: EntityCandidate) -> bool:
        """Whether the source lets a thing without a table or a key have one."""
        tables = [thing.home] if thing.home else [t for t, _ in thing.mentions]
        is_named = folded(camel(thing.name)) == folded(thing.name)
        if thing.home is not None and thing.key is not None and is_name(thing.key) and is_named:
            return True
        if self.shaping.can_shape(*tables):
            return True
        for table in tables:
            self._found(table, "left out", "its things have no table or no key, and this source takes no manifest")
        return False

    def _vocabularies(self) -> list[EntityCandidate]:
        """Things that are nothing but names, and are mentioned beside others: values of a domain."""
        bare = []
        for thing in self.things:
            twice = any(len(thing.columns_in(table)) > 1 for table, _ in thing.mentions)
            if thing.home is None or thing.key is None or not thing.mentions or twice or thing.home.blocks:
                continue
            names = [c for c in thing.home.columns.values() if c.name != thing.key]
            alone = all(c.kind == "text" and c.distinct * 2 > c.rows for c in names)
            side = any(table.columns[column].is_unique for table, column in thing.mentions)
            if alone and not side:
                bare.append(thing)
        every = [references(table, self.things) for table in self.tables]
        kept = [refs[0][1] for refs in every if refs and all(thing in bare for _, thing in refs)]
        return [thing for thing in bare if thing not in kept]

    # Entities

    def _entity(self, thing: EntityCandidate) -> None:
        home = thing.home
        name = self.names.free(camel(thing.name))
        sides = [(table, column) for table, column in thing.mentions if self._is_side(thing, table, column)]
        tables = [*([home] if home else []), *(table for table, _ in sides)]
        size = self._virtual_size(thing) if home is None else home.rows
        entity = ProposedEntity(name, thing.key or "id", size, thing.reason, thing.name)
        self.entities[id(thing)] = entity
        used = Names([entity.key])
        wanted: list[Wanted] = []
        is_shaped = home is None or thing.key is None or bool(sides)
        for table in tables:
            order = thing.order if table is home else None
            skipped = {thing.key} if table is home else {c for t, c in sides if t is table}
            skipped |= {c for c, other in references(table, self.things) if other is not thing}
            for column in table.columns.values():
                if column.name in skipped.difference(order or ()):
                    continue
                place = len(table.raw.columns) - 1 - table.raw.columns.index(column.name)
                found = self._attribute(table, column, size, place, in_order=order)
                if found is None:
                    continue
                plain = word(found.name)
                attribute = replace(found, name=used.free(f"{plain}_" if plain in BEFORE_NAMES else plain))
                if folded(attribute.name) != folded(column.name) and not self.shaping.can_shape(table):
                    reason = "the language has no such name, and this source takes no manifest"
                    self._without(table, column.name, reason)
                    continue
                wanted.append((table, column.name, attribute.name))
                entity.attributes.append(attribute)
            for block in table.blocks:
                is_shaped |= self._block(entity, thing, table, block, size, used, wanted)
        renamed = {name: column for _, column, name in wanted if isinstance(column, str)}
        if thing.order:
            by_column = {a.column: a.name for a in entity.attributes if home and a.table == home.name}
            entity.sequence = (by_column[thing.order[0]], by_column[thing.order[1]])
        splits = [c for t in tables for c in t.columns if c.lower() in SPLITS]
        if home is not None and splits:
            entity.split = splits[0]
            wanted.append((home, splits[0], splits[0]))
        if is_shaped:
            self._shape(thing, entity, sides, wanted)
        elif home is not None and self.shaping.can_shape(home):
            key = entity.key if is_name(entity.key) else used.free("id")
            self.shaping.take(home, entity.name, {key: entity.key} | renamed)
            entity.key = key
        self.scheme.entities.append(entity)
        for table, _ in sides:
            self._found(table, f"attributes of {name}", "one row a thing")
        finding = Finding(home.name if home else "(none)", f"entity {name}", size, thing.reason)
        self.scheme.findings.append(finding)

    def _is_side(self, thing: EntityCandidate, table: Profile, column: str) -> bool:
        """Return whether a table that mentions things has one row for each, with further attributes."""
        return (
            table in self.tables
            and table.columns[column].is_unique
            and len(references(table, self.things)) == 1
            and bool(table.blocks or [c for c in table.columns if c != column and c.lower() not in SPLITS])
            and not any(other.home is table for other in self.things)
            and self.shaping.can_shape(table, *([thing.home] if thing.home else []))
        )

    @staticmethod
    def _virtual_size(thing: EntityCandidate) -> int:
        unions = " UNION ".join(f"SELECT {quoted(c)} AS id FROM {t.scan}" for t, c in thing.mentions)
        (table, _), *_ = thing.mentions
        return table.number(f"SELECT count(*) FROM ({unions}) WHERE id IS NOT NULL")

    def _block(
        self,
        entity: ProposedEntity,
        thing: EntityCandidate,
        table: Profile,
        block: NumberedColumns,
        size: int,
        used: Names,
        wanted: list[Wanted],
    ) -> bool:
        """Adds a vector, or what is to be predicted of many columns; whether the table needs another shape."""
        is_home = table is thing.home
        if block.gaps or (not is_home and table.rows != size):
            if self._panel(entity, thing, table, block):
                return False
            self._without(table, f"{block.prefix}0..{len(block.columns) - 1}", "numbers with gaps make no vector")
            return False
        if (
            block.is_truth
            and len(block.columns) <= LEVELS * 4
            and stem(block.prefix) in ("label", "y", "target", "class")
        ):
            for column in block.columns:
                name = used.free(word(column))
                entity.attributes.append(ProposedAttribute(name, "bool", table.name, column, ("0", "1"), 2, 0, 0))
                wanted.append((table, column, name))
            return False
        is_plain = is_home and is_name(block.prefix) and block.prefix not in table.raw.columns
        is_plain &= all(c.removeprefix(block.prefix).removeprefix("_").isdigit() for c in block.columns)
        if not is_plain and not self.shaping.can_shape(table):
            reason = "columns of this form need a manifest, and this source takes none"
            self._without(table, f"{block.prefix}...", reason)
            return False
        side = table.name.lower().removesuffix("_wide")
        short = not is_home and len(block.prefix) < WORTHY and is_name(side) and side not in table.columns
        name = used.free(side if short else word(block.prefix, "numbers"))
        entity.attributes.append(ProposedAttribute(name, "vector", table.name, block.prefix, (), len(block.columns)))
        wanted.append((table, tuple(block.columns), name))
        return not is_plain

    def _panel(self, entity: ProposedEntity, thing: EntityCandidate, table: Profile, block: NumberedColumns) -> bool:
        """Numbers with gaps, of things and columns: a random relation of some levels. Whether that could be written."""
        if table is not thing.home or thing.key is None or not self.shaping.can_shape(table) or not block.gaps:
            return False
        item = self.names.free("Item", "Column", "Measure")
        relation = self.names.free(camel(f"{table.name}_value"), "Level")
        key = sayable(thing.key)
        cells = " UNION ALL ".join(
            f"SELECT {quoted(thing.key)} AS {key}, {literal(column)} AS item, "
            f"CAST({quoted(column)} AS DOUBLE) AS number FROM {self.shaping.rows_of(table)} WHERE {quoted(column)} IS NOT NULL"
            for column in block.columns
        )
        level = f"ntile({LEVELS}) OVER (PARTITION BY item ORDER BY number, {key})"
        self.shaping.query(
            relation,
            f"SELECT {key}, item, {level} AS value\nFROM ({cells})",
            f"the numbers of {len(block.columns)} columns, each cut into {LEVELS} levels that are equally frequent",
        )
        arguments = [
            Argument(key, entity.name, entity, key, entity.size),
            Argument("item", item, None, "item", len(block.columns)),
        ]
        self.scheme.domains.append(item)
        rows = len(block.columns) * table.rows - block.gaps
        reason = (
            f"{len(block.columns)} numbered columns, {block.gaps:,} of their cells are empty: asked, in {LEVELS} levels"
        )
        self.scheme.links.append(Link(relation, arguments, rows, reason, table.name, value="value", levels=LEVELS))
        self.scheme.findings.append(Finding(table.name, f"random relation {relation}", rows, reason))
        return True

    def _attribute(
        self, table: Profile, column: ColumnProfile, size: int, place: int, in_order: tuple[str, str] | None
    ) -> ProposedAttribute | None:
        """The attribute of a column, or why there is none."""
        missing = size - column.present
        attribute = ProposedAttribute(
            column.name, "", table.name, column.name, column.values, column.distinct, missing, place,
            column.low or 0.0, column.high or 0.0,
        )  # fmt: skip
        if in_order and column.name in in_order:
            return replace(attribute, type="integer" if column.kind == "whole" else "string")
        if column.name.lower() in SPLITS:
            self._without(table, column.name, "divides the rows: use it with --split")
            return None
        if column.distinct < 2 or len(column.values) == 1:
            self._without(table, column.name, "one value, or none" if column.distinct else "always empty")
            return None
        if column.kind == "list":
            return replace(attribute, type="bag")
        if column.kind == "numbers":
            return replace(attribute, type="vector")
        if column.is_truth:
            return replace(attribute, type="bool")
        repeats = column.present >= 2 * column.distinct
        if column.kind == "text" or (column.kind == "whole" and 0 < len(column.values) <= 12):
            if column.values and repeats:
                return replace(attribute, type="enumeration")
            if repeats:
                return replace(attribute, type="open")
            if column.kind == "text":
                self._without(table, column.name, "a text of its own for nearly every row: a name")
                return None
        if column.kind == "whole" and column.is_unique:
            self._without(table, column.name, "another number for every row: a name")
            return None
        types = {"whole": "integer", "real": "real", "date": "date"}
        return replace(attribute, type=types[column.kind])

    def _shape(
        self, thing: EntityCandidate, entity: ProposedEntity, sides: list[tuple[Profile, str]], wanted: list[Wanted]
    ) -> None:
        """Writes the query of an entity whose table is made of several, or has no key."""
        home = thing.home
        alias = {id(home): "h"} | {id(table): f"s{k}" for k, (table, _) in enumerate(sides, start=1)}
        selected = []
        for table, columns, name in wanted:
            a = alias[id(table)]
            if isinstance(columns, str):
                sql = f"{a}.{quoted(columns)}"
            else:
                sql = f"[{', '.join(f'CAST({a}.{quoted(c)} AS DOUBLE)' for c in columns)}]"
            selected.append(f"{sql} AS {quoted(name)}")
        if home is None:
            unions = "\nUNION ".join(
                f"SELECT {quoted(c)} AS id FROM {self.shaping.rows_of(t)}" for t, c in thing.mentions
            )
            source, key, shown = f"(SELECT DISTINCT id FROM ({unions}) WHERE id IS NOT NULL) AS h", "h.id", "h.id AS id"
        elif thing.key is None:
            source, key = f"{self.shaping.rows_of(home)} AS h", ""
            shown = "row_number() OVER () AS id"
            if thing.order:
                group, place = (f"h.{quoted(c)}" for c in thing.order)
                shown = f"CAST({group} AS VARCHAR) || ':' || CAST({place} AS VARCHAR) AS id"
        else:
            source, key = f"{self.shaping.rows_of(home)} AS h", f"h.{quoted(thing.key)}"
            entity.key = "id"
            shown = f"{key} AS id"
        lines = [f"SELECT {', '.join([shown, *selected])}", f"FROM {source}"]
        lines += [
            f"LEFT JOIN {self.shaping.rows_of(table)} AS {alias[id(table)]} ON {alias[id(table)]}.{quoted(column)} = {key}"
            for table, column in sides
        ]
        self.shaping.query(entity.name, "\n".join(lines), f"a row for each {entity.name}")
        if home is not None and home.name in self.shaping.files:
            del self.shaping.files[home.name]

    # Relations and bags

    def _relations_of(self, table: Profile) -> None:
        own = next((thing for thing in self.things if thing.home is table), None)
        if own is not None:
            self._memberships(own, table)
            return
        if any(f.table == table.name for f in self.scheme.findings):
            return
        refs = [(c, t) for c, t in references(table, self.things) if id(t) in self.entities]
        if not refs:
            self._found(table, "left out", "no column refers to things, and no column tells its rows apart")
            return
        self._relation(table, refs)

    def _memberships(self, thing: EntityCandidate, home: Profile) -> None:
        """Add a relation for each column of an entity's own table that refers to other things."""
        entity = self.entities.get(id(thing))
        if entity is None:
            return
        for column, other in references(home, self.things):
            if thing.key is None or not self.shaping.can_shape(home):
                self._without(home, column, "refers to other things, for which this source would need a manifest")
            elif id(other) in self.entities:
                name = self.shaping.names.free(f"{home.name}_{word(column)}")
                key, own, rows = quoted(thing.key), quoted(column), self.shaping.rows_of(home)
                sql = f"SELECT {key} AS thing, {own} AS other FROM {rows} WHERE {own} IS NOT NULL"
                self.shaping.query(name, sql, f"which {other.name} a {thing.name} belongs to")
                first = Argument("thing", entity.name, entity, "thing", entity.size)
                arguments = [first, self._argument("other", other, "other", home.columns[column].distinct)]
                reason, present = f"{home.name}.{column} lies in {other.name}.{other.key}", home.columns[column].present
                link = Link(self.names.free(camel(name)), arguments, present, reason, home.name)
                self.scheme.links.append(link)
                self._found(home, f"relation {link.name}", reason)

    def _argument(self, name: str, thing: EntityCandidate, column: str, distinct: int) -> Argument:
        sort = self.entities[id(thing)]
        return Argument(name, sort.name, sort if sort.key else None, column, distinct)

    def _relation(self, table: Profile, refs: list[tuple[str, EntityCandidate]]) -> None:
        told = {c for c, _ in refs}
        refs = self._without_told(table, refs)
        columns = [c for c, _ in refs]
        rest = [c for c in table.columns.values() if c.name not in told and c.name.lower() not in SPLITS]
        rest = [c for c in rest if c.distinct > 1 or len(refs) == 1]
        reason = "; ".join(f"{c} lies in {f'{t.home.name}.{t.key}' if t.home else t.name}" for c, t in refs)
        if len(refs) == 2 and refs[0][1] is refs[1][1] and not rest:
            a, b = (quoted(c) for c in columns)
            if not table.number(f"SELECT count(*) FROM this WHERE {a} <> {b}"):
                self._found(table, "left out", f"says only that each {refs[0][1].name} is itself")
                return
        can_shape = self.shaping.can_shape(table)
        used = Names()
        renamed = {used.free(sayable(column)): column for column in columns}
        arguments = [
            self._argument(own, thing, column, table.columns[column].distinct)
            for own, (column, thing) in zip(renamed, refs, strict=True)
        ]
        attributes, value = [], None
        name = self.names.free(camel(table.name), camel(f"{table.name}_of"))
        tuples = table.distinct(columns)
        for one in rest:
            is_value = one.is_truth and len(refs) > 1 and one.name.lower() in {*VALUES, folded(table.name)}
            functional = tuples == table.distinct([*columns, one.name])
            if is_value and functional:
                value = "value"
                renamed["value"] = one.name
            elif len(refs) == 1 or not functional:
                if one.kind == "real" or one.distinct == table.rows or one.kind not in ("text", "whole"):
                    self._without(table, one.name, "no value of its own for each tuple, and too many to be arguments")
                    continue
                own = used.free(sayable(one.name))
                domain = self.names.free(camel(one.name), camel(f"{one.name}_value"))
                self.scheme.domains.append(domain)
                renamed[own] = one.name
                arguments.append(Argument(own, domain, None, one.name, one.distinct))
            else:
                found = self._attribute(table, one, table.rows, 1, None)
                if found is not None and found.type in ("integer", "real", "bool", "enumeration", "open"):
                    attribute = replace(found, name=used.free(word(one.name)))
                    renamed[attribute.name] = one.name
                    attributes.append(attribute)
        misnamed = {new: old for new, old in renamed.items() if folded(new) != folded(old)}
        if can_shape:
            self.shaping.take(table, name, misnamed)
        elif misnamed:
            reason = "its columns have names that the language has not, and this source takes no manifest"
            self._found(table, "left out", reason)
            return
        if len(refs) == 1 and len(arguments) == 2 and not attributes and self._as_bag(table, arguments):
            return
        if folded(name) != folded(table.name) and not can_shape:
            self._found(table, "left out", f"its name is that of something else: {camel(table.name)}")
            return
        link = Link(name, arguments, table.rows, reason, table.name, attributes, value, profile=table)
        self._pairs(link)
        if value is not None and can_shape:
            self.shaping.opened.add(table.name if folded(name) == folded(table.name) else name)
            self.shaping.is_needed = True
        self.scheme.links.append(link)
        self._found(table, f"relation {name}" if value is None else f"random relation {name}", reason)

    def _without_told(
        self, table: Profile, refs: list[tuple[str, EntityCandidate]]
    ) -> list[tuple[str, EntityCandidate]]:
        """References without those that two others of one kind tell already: the molecule of a bond of atoms."""
        doubled = [(c, t) for c, t in refs if sum(other is t for _, other in refs) == 2]
        if len(doubled) != 2 or len(refs) == 2:
            return refs
        pair = [c for c, _ in doubled]
        told = [c for c, _ in refs if c not in pair and table.distinct(pair) == table.distinct([*pair, c])]
        for column in told:
            self._without(table, column, f"{' and '.join(pair)} tell it")
        return [(c, t) for c, t in refs if c not in told]

    def _as_bag(self, table: Profile, arguments: list[Argument]) -> bool:
        """Makes it a bag where the table's name says so, as `page_word` does."""
        (owner, value) = arguments
        if owner.entity is None or not table.name.lower().startswith(owner.entity.table.lower() + "_"):
            return False
        what = table.name[len(owner.entity.table) + 1 :]
        if stem(what) != stem(value.column) or not is_name(table.name) or value.entity is not None:
            return False
        name = value.column if value.column.endswith("s") else f"{value.column}s"
        if any(folded(a.name) == folded(name) for a in owner.entity.attributes):
            return False
        owner.entity.bags.append(ProposedBag(name, value.sort, value.distinct))
        reason = f"{owner.column} lies in {owner.entity.table}; many values a thing"
        self._found(table, f"bag {owner.entity.name}.{name}", reason)
        return True

    def _pairs(self, link: Link) -> None:
        """Looks whether pairs of one entity stand in both orders, and whether some are pairs of a thing with itself."""
        if len(link.arguments) < 2 or link.profile is None or link.arguments[0].entity is None:
            return
        twice = [x for x in link.arguments if x.entity and len(link.of(x.entity)) == 2]
        if len(twice) != 2:
            return
        a, b = (quoted(x.column) for x in twice)
        others = "".join(f" AND t.{quoted(x.column)} = s.{quoted(x.column)}" for x in link.arguments if x not in twice)
        table = link.profile
        same = table.number(f"SELECT count(*) FROM this WHERE {a} = {b}")
        back = table.number(
            f"SELECT count(*) FROM this AS t WHERE t.{a} <> t.{b} AND EXISTS "
            f"(SELECT 1 FROM this AS s WHERE s.{a} = t.{b} AND s.{b} = t.{a}{others})"
        )
        link.is_symmetric = back >= 0.98 * (table.rows - same) > 0
        link.irreflexive = same == 0

    # Splits

    def _split_columns(self) -> None:
        """Columns of few values in which both ends of every link agree: what to split by, and no evidence."""
        for entity in self.scheme.entities:
            home = next((t for t in self.tables if t.name == entity.table), None)
            binary = [k for k in self.scheme.links if len(k.of(entity)) == 2 == len(k.arguments)]
            links = [k for k in binary if k.profile and k.value is None]
            if home is None or not links or entity.key not in home.columns:
                continue
            for attribute in list(entity.attributes):
                if attribute.type not in ("enumeration", "open") or attribute.missing or attribute.distinct > FEW:
                    continue
                if all(self._never_crosses(home, entity.key, attribute.column, link, entity) for link in links):
                    entity.attributes.remove(attribute)
                    entity.split = entity.split or attribute.name
                    self._without(home, attribute.column, "no link crosses it: use it with --split")

    @staticmethod
    def _never_crosses(home: Profile, key: str, column: str, link: Link, entity: ProposedEntity) -> bool:
        assert link.profile is not None
        a, b = (quoted(x.column) for x in link.of(entity))
        k, c = quoted(key), quoted(column)
        crossing = (
            f"SELECT count(*) FROM {link.profile.scan} AS l JOIN this AS x ON x.{k} = l.{a} "
            f"JOIN this AS y ON y.{k} = l.{b} WHERE x.{c} <> y.{c}"
        )
        return home.number(crossing) == 0
