"""Templates of proposed models: a typical first set of templates for a prediction target."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain, combinations, count, product

from relcrf.proposal.names import NamePool, argument_name, camel_case, snake_case
from relcrf.proposal.profile import MAX_ENUMERATION, count_unmatched_values
from relcrf.proposal.schema import ProposedAttribute, ProposedEntity, ProposedRelation, ProposedSchema, RelationArgument
from relcrf.proposal.target import PredictionTarget

MAX_TABLE_VALUES = 40
"""Maximum number of target values for which pairs have a full weight table; otherwise they have one equality weight."""

MAX_NEIGHBOURS = 50
"""Maximum degree of an entity whose neighbours are paired; a common neighbour of larger degree is weak evidence."""

MAX_SHARED_VALUES = 5
"""Maximum mean number of values of an entity, such as the authors of an article, for which entities with a common value are
paired; entities with more values, such as words, have common values by chance."""

MIN_SKEWED = 20
"""Minimum upper limit of positive numbers whose logarithm is a feature."""


@dataclass(frozen=True)
class ProposedTemplate:
    """A proposed template or candidate declaration.

    Args:
        name: Name of the template.
        comment: One-line summary.
        text: The template, preceded by a derived relation if the template uses one.
        is_active: Whether the model contains the template; if not, the template is written as a comment.
        equality: A template with one weight for equal labels, which can replace a table of weights; None if this template
            has no table over both ends of a link.
        column: The evidence of a template of single labels: `Entity.attribute`, or `Relation.argument.attribute`.
    """

    name: str
    comment: str
    text: str
    is_active: bool = True
    equality: ProposedTemplate | None = None
    column: str = ""


def propose_templates(schema: ProposedSchema, target: PredictionTarget) -> list[ProposedTemplate]:
    """Return the templates and `candidates` declarations for a prediction target."""
    return _TemplateBuilder(schema, target).run()


class _TemplateBuilder:
    def __init__(self, schema: ProposedSchema, target: PredictionTarget) -> None:
        self.schema, self.target = schema, target
        self.relations = NamePool(schema.names)
        self.names = NamePool()
        self.templates: list[ProposedTemplate] = []

    def run(self) -> list[ProposedTemplate]:
        if self.target.relation is not None:
            self._add_for_target(self.target.relation)
            return self.templates
        entity = self.target.entity
        assert entity is not None
        has_several = len(self.target.attributes) > 1
        for attribute in self.target.attributes:
            self._add_for_attribute(entity, attribute, f"_{attribute.name}" if has_several else "")
        for one, other in combinations(self.target.attributes, 2):
            x = binder_name(entity.name)
            self._add(
                f"{one.name}_{other.name}", "co-occurrence of two labels of an entity",
                f"({x}: {entity.name})", f"over {x}.{one.name}, {x}.{other.name}",
            )  # fmt: skip
        return self.templates

    def _add(
        self,
        name: str,
        comment: str,
        binders: str,
        *clauses: str,
        derivation: str = "",
        is_active: bool = True,
        column: str = "",
    ) -> None:
        name = self.names.reserve(argument_name(name))
        text = "\n    ".join([f"template {name}{binders}", *clauses])
        self.templates.append(ProposedTemplate(name, comment, derivation + text, is_active, column=column))

    # Attributes

    def _add_for_attribute(self, entity: ProposedEntity, attribute: ProposedAttribute, suffix: str) -> None:
        x, label = binder_name(entity.name), attribute.name
        binder, target = f"({x}: {entity.name})", f"{x}.{label}"
        comment = "mean and deviation of" if attribute.is_number else "frequency of each value of"
        self._add(f"prior{suffix}", f"{comment} {label}", binder, f"over {target}")
        for bag in entity.bags:
            name, w = f"{bag.name.removesuffix('s')}{suffix}", binder_name(bag.domain, x)
            if bag.is_text:
                evidence = f"by normalise(tfidf({x}.{bag.name}))"
                self._add(name, f"{label} depends on each word in {bag.name}", binder, f"over {target}", evidence)
                continue
            self._add(
                name, f"{label} depends on each value in {bag.name}",
                f"({x}: {entity.name}, {w}: {bag.domain})", f"where {w} in {x}.{bag.name}", f"over {target}", f"per {w}",
            )  # fmt: skip
        for other in entity.attributes:
            if other in self.target.attributes or (entity.sequence and other.name in entity.sequence):
                continue
            evidence = self._evidence_clause(f"{x}.{other.name}", other)
            if evidence:
                comment = f"{label} depends on {other.name}"
                column = f"{entity.name}.{other.name}"
                self._add(f"{other.name}{suffix}", comment, binder, f"over {target}", evidence, column=column)
        if entity.sequence:
            self._add_for_sequence(entity, attribute, suffix)
        for relation in self.schema.relations:
            if relation.value_column is None:
                self._add_for_relation(entity, attribute, relation, suffix)

    def _add_for_sequence(self, entity: ProposedEntity, attribute: ProposedAttribute, suffix: str) -> None:
        assert entity.sequence is not None
        group, position = entity.sequence
        binders = _pair_binders(entity)
        next_name = "Next" if not suffix else f"Next{suffix}"
        name, is_table = self.relations.reserve(next_name, "Following"), not attribute.is_number
        derive = f"derive {name}{binders}\n    where a.{group} == b.{group} and b.{position} == a.{position} + 1\n\n"
        self._add(
            f"step{suffix}",
            f"{attribute.name} depends on the previous label with the same {group}" + ": a full weight table" * is_table,
            binders, f"where {name}(a, b)", self._pair_clause(attribute), derivation=derive,
        )  # fmt: skip
        for other in entity.attributes:
            if (
                other.type in ("enumeration", "open")
                and other not in self.target.attributes
                and other.name not in entity.sequence
            ):
                self._add(
                    f"before_{other.name}{suffix}",
                    f"{attribute.name} depends on {other.name} of the previous {entity.name} entity",
                    binders, f"where {name}(a, b)", f"over b.{attribute.name}", f"per a.{other.name}",
                )  # fmt: skip

    def _evidence_clause(self, term: str, attribute: ProposedAttribute) -> str:
        """Return the `per` or `by` clause for an evidence attribute; '' if the attribute's type is not supported."""
        match attribute.type:
            case "enumeration" | "open" | "bool":
                return f"per {term}"
            case "vector":
                return f"by {term}" if attribute.values else f"by standardise({term})"
            case "integer" | "real":
                return f"by {standardised_terms(term, attribute.low, attribute.high, self.target)}"
            case "datetime" | "time":
                start = "2000-01-01" if attribute.type == "datetime" else "00:00"
                return f'by standardise({term} - "{start}")'
        return ""

    @staticmethod
    def _pair_clause(attribute: ProposedAttribute, *, symmetric: bool = False) -> str:
        if attribute.is_number or attribute.distinct > MAX_TABLE_VALUES:
            return _equality_clause(attribute)
        return f"over {'symmetric ' * symmetric}a.{attribute.name}, b.{attribute.name}"

    def _add_for_relation(
        self, entity: ProposedEntity, attribute: ProposedAttribute, relation: ProposedRelation, suffix: str
    ) -> None:
        own, others = relation.arguments_of(entity), relation.other_arguments(entity)
        lower = snake_case(relation.name)
        x, label = binder_name(entity.name), attribute.name
        if len(own) == 2:
            self._add_pair_template(entity, attribute, relation, f"{lower}{suffix}")
        elif len(own) == 1:
            names = binder_names(others, {own[0].name: x})
            atom = render_atom(relation, names)
            if not others:
                binder, comment = f"({x}: {entity.name})", f"{label} of the entities in {relation.name}"
                self._add(f"{lower}{suffix}", comment, binder, f"where {atom}", f"over {x}.{label}")
            for argument in others:
                y = names[argument.name]
                binders = f"({x}: {entity.name}, {y}: {argument.type_name})"
                value = argument.name.strip("_")
                name = f"{lower if lower.endswith(value) else f'{lower}_{value}'}{suffix}"
                if argument.entity is None:
                    comment = f"{label} depends on each {argument.type_name} value in {relation.name}"
                    self._add(name, comment, binders, f"where {atom}", f"over {x}.{label}", f"per {y}")
                    has_few = relation.rows <= MAX_SHARED_VALUES * entity.size
                    if argument.distinct > MAX_ENUMERATION and has_few and not entity.sequence:
                        shared = f"same_{lower}{f'_{value}' * (len(others) > 1)}{suffix}"
                        self._add_shared_template(entity, attribute, relation, own[0], argument, shared)
                    continue
                for other in argument.entity.attributes:
                    sequence = argument.entity.sequence or ()
                    evidence = self._evidence_clause(f"{y}.{other.name}", other) if other.name not in sequence else ""
                    if evidence and other not in self.target.attributes:
                        comment = (
                            f"{label} depends on {other.name} of each {argument.type_name} entity in {relation.name}"
                        )
                        name = f"{lower}_{other.name}{suffix}"
                        column = f"{relation.name}.{argument.name}.{other.name}"
                        clauses = (f"where {atom}", f"over {x}.{label}", evidence)
                        self._add(name, comment, binders, *clauses, column=column)
                if not entity.sequence:
                    self._add_shared_template(entity, attribute, relation, own[0], argument, f"same_{lower}{suffix}")
                if relation.rows <= entity.size and len(others) == 1 and not entity.sequence:
                    self._add_indirect_templates(entity, attribute, relation, argument, suffix)

    def _add_pair_template(
        self, entity: ProposedEntity, attribute: ProposedAttribute, relation: ProposedRelation, name: str
    ) -> None:
        first, second = relation.arguments_of(entity)
        atom = render_atom(
            relation, binder_names(relation.other_arguments(entity), {first.name: "a", second.name: "b"})
        )
        binders = _pair_binders(entity)
        distinct = "a < b" if relation.is_symmetric else "a != b"
        clauses = [f"where {atom} and {distinct}", self._pair_clause(attribute, symmetric=relation.is_symmetric)]
        if len(relation.arguments) == 2:
            key = next(
                (a for a in relation.attributes if a.is_discrete or (a.type == "integer" and a.distinct <= 12)), None
            )
            number = next((a for a in relation.attributes if a.type == "real"), None)
            if key is not None:
                clauses.append(f"per {atom}.{key.name}")
            if number is not None:
                clauses.append(f"by 1, {atom}.{number.name}")
        comment = f"the labels at both ends of a {relation.name} tuple depend on each other"
        if attribute.is_number:
            self._add(name, f"the numbers at both ends of a {relation.name} tuple deviate together", binders, *clauses)
            return
        is_table = attribute.distinct <= MAX_TABLE_VALUES
        one_weight = f"{comment}: one weight for equality"
        self._add(name, f"{comment}: a full weight table" if is_table else one_weight, binders, *clauses)
        if is_table:
            table = self.templates[-1]
            text = table.text.replace(clauses[1], _equality_clause(attribute))
            self.templates[-1] = replace(table, equality=replace(table, comment=one_weight, text=text))
        if len(relation.arguments) == 2:
            r = relation.name
            where = f"{r}(c, a) and {r}(c, b) and a < b and count {{ d where {r}(c, d) }}"
            comment = f"{entity.name} entities with a {r} tuple from a common entity tend to have equal labels"
            self._add_equality_template(
                f"co_{name}", comment, entity, attribute, self.relations.reserve(f"Co{r}"), where
            )

    def _add_equality_template(
        self, name: str, comment: str, entity: ProposedEntity, attribute: ProposedAttribute, relation: str, where: str
    ) -> None:
        """Add a template for the pairs of a derived relation; its only weight applies if both values are equal.

        Both values of a number deviate from their means together.
        """
        kind = "" if attribute.is_number else "one weight: "
        self._add(
            name, f"{kind}{comment}; hubs with more than {MAX_NEIGHBOURS} links are skipped", _pair_binders(entity),
            f"where {relation}(a, b)", _equality_clause(attribute),
            derivation=f"derive {relation}{_pair_binders(entity)}\n    where {where} <= {MAX_NEIGHBOURS}\n\n",
        )  # fmt: skip

    def _add_shared_template(
        self,
        entity: ProposedEntity,
        attribute: ProposedAttribute,
        relation: ProposedRelation,
        own: RelationArgument,
        shared: RelationArgument,
        name: str,
    ) -> None:
        """Add a template for pairs of entities that are related to the same entity of another type or the same value."""

        def atom(x: str) -> str:
            others = [a for a in relation.arguments if a is not own and a is not shared]
            names = {own.name: x, shared.name: "s"} | {a.name: f"q{x}{k}" for k, a in enumerate(others)}
            return render_atom(relation, names)

        where = f"{atom('a')} and {atom('b')} and a < b and count {{ c where {atom('c')} }}"
        tendency = "deviate together" if attribute.is_number else "tend to have equal labels"
        kind = "value" if shared.entity is None else "entity"
        comment = f"{entity.name} entities with a common {shared.type_name} {kind} {tendency}"
        self._add_equality_template(name, comment, entity, attribute, self.relations.reserve(camel_case(name)), where)

    def _add_indirect_templates(
        self,
        entity: ProposedEntity,
        attribute: ProposedAttribute,
        membership: ProposedRelation,
        owner: RelationArgument,
        suffix: str,
    ) -> None:
        """Add templates for pairs of entities whose owners share something, such as orders of customers with one address.

        Args:
            membership: A relation that joins each entity to at most one owner.
            owner: The argument of the owners.
        """
        assert owner.entity is not None
        for relation in self.schema.relations:
            is_sparse = relation.rows <= MAX_SHARED_VALUES * owner.entity.size
            is_single = len(relation.arguments_of(owner.entity)) == 1
            if relation is membership or relation.value_column is not None or not is_sparse or not is_single:
                continue
            for shared in relation.other_arguments(owner.entity):
                if shared.entity is not entity and (shared.entity is not None or shared.distinct > MAX_ENUMERATION):
                    value = shared.name.strip("_")
                    name = f"same_{snake_case(membership.name)}_{value}{suffix}"
                    self._add_indirect_template(entity, attribute, membership, owner, relation, shared, name)

    def _add_indirect_template(
        self,
        entity: ProposedEntity,
        attribute: ProposedAttribute,
        membership: ProposedRelation,
        owner: RelationArgument,
        relation: ProposedRelation,
        shared: RelationArgument,
        name: str,
    ) -> None:
        """Add a template for pairs of entities whose different owners have a common value or entity in a relation."""
        assert owner.entity is not None
        (own,), (owned,) = membership.arguments_of(entity), relation.arguments_of(owner.entity)

        def path(x: str, y: str) -> str:
            others = [a for a in relation.arguments if a is not owned and a is not shared]
            names = {owned.name: y, shared.name: "s"} | {a.name: f"q{x}{k}" for k, a in enumerate(others)}
            return f"{render_atom(membership, {own.name: x, owner.name: y})} and {render_atom(relation, names)}"

        where = f"{path('a', 'd')} and {path('b', 'e')} and d != e and a < b and count {{ c where {path('c', 'f')} }}"
        kind = "value" if shared.entity is None else "entity"
        tendency = "deviate together" if attribute.is_number else "tend to have equal labels"
        owners = f"{entity.name} entities whose {owner.type_name} entities"
        comment = f"{owners} have a common {shared.type_name} {kind} {tendency}"
        self._add_equality_template(name, comment, entity, attribute, self.relations.reserve(camel_case(name)), where)

    # Relations

    def _add_for_target(self, relation: ProposedRelation) -> None:
        names = binder_names(relation.arguments, {})
        atom = render_atom(relation, names)
        binders = _binders(relation, names)
        keys = [a for a in relation.arguments if a.entity is None]
        per = [f"per {', '.join(names[a.name] for a in keys)}"] if keys else []
        comment = "frequency of the tuples" + (f", for each value of {keys[0].type_name}" if keys else "")
        self._add("prior", comment, binders, f"over {atom}", *per)
        first = relation.arguments[0].entity
        if first is not None and len(relation.arguments) == len(relation.arguments_of(first)) == 2:
            a, b = (names[x.name] for x in relation.arguments)
            pair = f"over {relation.name}({a}, {b}), {relation.name}({b}, {a})"
            self._add("mutual", "reciprocity: both directions or neither", binders, f"where {a} < {b}", pair)
        for argument in relation.arguments:
            for other in argument.entity.attributes if argument.entity else ():
                evidence = self._evidence_clause(f"{names[argument.name]}.{other.name}", other)
                if evidence and not (evidence.startswith("per") and per):
                    self._add(
                        f"{argument.name.strip('_')}_{other.name}",
                        f"{relation.name} depends on {other.name} of the argument {argument.name.strip('_')}",
                        binders, f"over {atom}", evidence,
                    )  # fmt: skip
        self._add_common_neighbours(relation, names)
        self._add_candidates(relation, names, keys)

    def _add_common_neighbours(self, relation: ProposedRelation, names: dict[str, str]) -> None:
        """Add templates for pairs of entities that are related to a common third entity."""
        ends = [(names[a.name], a.entity) for a in relation.arguments if a.entity is not None]
        if len(ends) != 2 or len(relation.arguments) != 2:
            return
        (x, first), (y, second) = ends
        others = [first_relation for first_relation in self.schema.relations if first_relation is not relation]
        for first_relation, second_relation in product(others, others):
            for first_argument, second_argument in product(
                first_relation.arguments_of(first), second_relation.arguments_of(second)
            ):
                self._add_common_neighbour(
                    relation, (first_relation, first_argument, x), (second_relation, second_argument, y)
                )

    def _add_common_neighbour(
        self,
        target: ProposedRelation,
        left: tuple[ProposedRelation, RelationArgument, str],
        right: tuple[ProposedRelation, RelationArgument, str],
    ) -> None:
        (one, mine, x), (other, yours, y) = left, right
        if len(one.arguments) < 2 or len(other.arguments) < 2 or one.value_column or other.value_column:
            return
        for shared in one.arguments:
            for same in other.arguments:
                if (
                    shared is mine
                    or same is yours
                    or shared.type_name != same.type_name
                    or shared.type_name == mine.type_name
                ):
                    continue
                if (one is other) and (shared is not same or mine is not yours):
                    continue
                atoms, z = [], binder_name("s", x, y)
                for side, (relation, own, name, common) in enumerate(((one, mine, x, shared), (other, yours, y, same))):
                    names = {a.name: f"q{side}{k}" for k, a in enumerate(relation.arguments)}
                    atoms.append(render_atom(relation, names | {common.name: z, own.name: name}))
                noun = "value" if shared.entity is None else "entity"
                relation_name = self.relations.reserve(f"Common{one.name}{'' if one is other else other.name}")
                binders = f"({x}: {mine.type_name}, {y}: {yours.type_name})"
                distinct = f" and {x} != {y}" if mine.type_name == yours.type_name else ""
                derive = f"derive {relation_name}{binders}\n    where {' and '.join(atoms)}{distinct}\n\n"
                self._add(
                    snake_case(relation_name),
                    f"both arguments have a common {shared.type_name} {noun}, by {one.name} and {other.name}",
                    binders, f"where {relation_name}({x}, {y})", f"over {target.name}({x}, {y})", derivation=derive,
                )  # fmt: skip

    def _add_candidates(self, relation: ProposedRelation, names: dict[str, str], keys: list[RelationArgument]) -> None:
        if len(keys) != 1:
            return
        (key,) = keys
        s = names[key.name]
        t = binder_name("", *names.values(), s)
        binders = _binders(relation, names)[:-1] + f", {t}: {key.type_name})"
        pair = (render_atom(relation, names), render_atom(relation, names | {key.name: t}))
        joined = ", ".join(pair) if relation.levels else " and ".join(pair)
        name = self.names.reserve("together")
        clauses = "\n    ".join([f"candidates {name}{binders}", f"where {s} < {t}", f"over {joined}", f"per {s}, {t}"])
        backend = "gated or ess" if relation.levels else "trmrf"
        comment = (
            f"pairs of {key.type_name} values that occur together; structure learning selects among them "
            f"(relcrf train --backend {backend})"
        )
        self.templates.append(ProposedTemplate(name, comment, clauses))


def relation_guards(schema: ProposedSchema, relation: ProposedRelation) -> list[str]:
    """Return conditions that hold for all tuples of a predicted relation: `x != y`, or a unary relation `R(x)`."""
    guards, profile = [], relation.profile
    if relation.is_irreflexive:
        first, second = (a for a in relation.arguments if a.entity and len(relation.arguments_of(a.entity)) == 2)
        guards.append(f"{first.name} != {second.name}")
    for argument in relation.arguments:
        unary_relations = [
            candidate
            for candidate in schema.relations
            if len(candidate.arguments) == 1 and candidate.arguments[0].entity is argument.entity is not None
            and profile is not None and candidate.profile is not None
            and count_unmatched_values(profile, argument.column, candidate.profile, candidate.arguments[0].column) == 0
        ]  # fmt: skip
        if unary_relations:
            guards.append(f"{min(unary_relations, key=lambda candidate: candidate.rows).name}({argument.name})")
    return guards


def render_atom(relation: ProposedRelation, names: dict[str, str]) -> str:
    return f"{relation.name}({', '.join(names[a.name] for a in relation.arguments)})"


def _equality_clause(attribute: ProposedAttribute) -> str:
    """Return the `over` clause of a pair with equal labels, or of two numbers."""
    return f"over a.{attribute.name}{',' if attribute.is_number else ' =='} b.{attribute.name}"


def _pair_binders(entity: ProposedEntity) -> str:
    return f"(a: {entity.name}, b: {entity.name})"


def _binders(relation: ProposedRelation, names: dict[str, str]) -> str:
    return "(" + ", ".join(f"{names[a.name]}: {a.type_name}" for a in relation.arguments) + ")"


def binder_name(type_name: str, *taken: str) -> str:
    """Return an unused name of a binder (variable): the first letter of its type, another letter, or a letter and a number."""
    letters: list[str] = [c for c in (type_name[:1].lower(), *"xyzuvwtrspq") if c]
    return next(c for c in chain(letters, (f"x{k}" for k in count(1))) if c not in taken)


def binder_names(arguments: list[RelationArgument], names: dict[str, str]) -> dict[str, str]:
    """Return a copy of `names` (binders by argument name), to which a binder is added for each of `arguments`."""
    for argument in arguments:
        names = names | {argument.name: binder_name(argument.type_name, *names.values())}
    return names


def standardised_terms(term: str, low: float, high: float, target: PredictionTarget) -> str:
    """Return the features of a number between two limits.

    Numbers are standardised: otherwise, the optimiser converges slowly, and a missing number has the effect of the number 0
    instead of the effect of the mean. Positive numbers with a wide range have their logarithm as the feature. If the target is a
    number, too, it may depend on the number itself: on the example `prices`, both features together have the error of the
    number alone, which is 10 % less than that of the logarithm.
    """
    if low < 0 or high <= MIN_SKEWED:
        return f"standardise({term})"
    return f"standardise({term}), " * target.is_number + f"standardise(log1p({term}))"
