"""Rendering of proposed models as text with explanatory comments."""

from __future__ import annotations

import json
from collections.abc import Sequence

from relcrf.language.format import format_text
from relcrf.language.keywords import is_name, is_reserved
from relcrf.printable import escape_unprintable
from relcrf.proposal.names import NamePool, camel_case
from relcrf.proposal.schema import ProposedAttribute, ProposedEntity, ProposedRelation, ProposedSchema
from relcrf.proposal.target import PredictionTarget
from relcrf.proposal.templates import ProposedTemplate, relation_guards


def model_text(
    name: str,
    schema: ProposedSchema,
    target: PredictionTarget,
    templates: list[ProposedTemplate],
    alternatives: Sequence[str],
    commands: Sequence[str],
) -> str:
    """Return the text of a model file.

    Args:
        name: The file name of the model.
        alternatives, commands: Names of other targets, and commands for the user to run next; written as comments.
    """
    declarations = _Declarations(schema, target, templates)
    entities = [declarations.render_entity(entity) for entity in schema.entities]
    relations = [declarations.render_relation(relation) for relation in schema.relations]
    head = [f"# {_single_line(name)}: a first model, proposed from the tables alone. Edit it as needed."]
    head += [f"# It predicts {_single_line(target.name)} ({_single_line(target.reason)})."]
    if alternatives:
        head.append(f"# Other targets, for --predict: {_single_line(', '.join(alternatives))}.")
    parts = ["\n".join(head), "\n".join(declarations.domains.values()), *entities, *relations]
    parts += [f"# {_single_line(p.comment)}\n{p.text}" for p in templates if p.is_active]
    text = format_text("\n\n".join(part for part in parts if part) + "\n")
    ending = [
        f"# Left out: {_single_line(column)}: {_single_line(reason)}."
        for column, reason in schema.excluded_columns[:20]
    ]
    ending += [f"# Warning: {_single_line(warning)}." for warning in schema.warnings]
    for template in templates:
        if not template.is_active:
            ending += ["", f"# To try: {_single_line(template.comment)}."]
            ending += [f"# {line}".rstrip() for line in template.text.split("\n")]
    if commands:
        ending += ["", "# Next:", *(f"#   {_single_line(command)}" for command in commands)]
    return "\n".join([text, *ending]).strip("\n") + "\n"


class _Declarations:
    """A renderer of the declarations of a schema; `domains` contains the declarations of the attributes' domains."""

    def __init__(self, schema: ProposedSchema, target: PredictionTarget, templates: list[ProposedTemplate]) -> None:
        self.schema, self.target = schema, target
        derived = [word for p in templates for word in p.text.split("(")[0].split()[1:] if p.text.startswith("derive")]
        self.names = NamePool([*schema.names, *derived])
        self.domains = {name: f"domain {name} = open  # values are read from the data" for name in schema.domains}

    def render_entity(self, entity: ProposedEntity) -> str:
        key = "" if entity.key == "id" else f"({entity.key})"
        lines = []
        for attribute in entity.attributes:
            is_target = self.target.entity is entity and attribute in self.target.attributes
            role = "predict " if is_target else ""
            comment = "predicted where the value is missing" if is_target else _attribute_comment(attribute)
            lines.append(
                f"    {role}{attribute.name} : {self._declare_type(attribute, is_target=is_target)}  # {comment}"
            )
        lines += [
            f"    {bag.name} : bag of {bag.domain}  # several values, {bag.distinct:,} distinct ones"
            for bag in entity.bags
        ]
        body = " {\n" + "\n".join(lines) + "\n}" if lines else ""
        return f"# {_single_line(entity.reason)}.\nentity {entity.name}{key}{body}"

    def _declare_type(self, attribute: ProposedAttribute, *, is_target: bool = False) -> str:
        """Return the type of an attribute, and declare its domain.

        Only a target has a closed domain: evidence may have other values in the data of a later prediction.
        """
        if attribute.type in ("enumeration", "open"):
            name = self.names.reserve(camel_case(attribute.name), camel_case(f"{attribute.name}_value"))
            if is_target and attribute.values:
                values = f"{{ {', '.join(map(_render_value, attribute.values))} }}"
            else:
                values = "open  # values are read from the data"
            self.domains[name] = f"domain {name} = {values}"
            return name
        return "real" if is_target and attribute.is_number else attribute.type

    def render_relation(self, relation: ProposedRelation) -> str:
        arguments = ", ".join(f"{a.name}: {a.type_name}" for a in relation.arguments)
        attributes = ", ".join(f"{a.name} : {self._declare_type(a)}" for a in relation.attributes)
        reason = f"# {_single_line(relation.reason)}.\n"
        if relation is not self.target.relation:
            if relation.value_column is not None:
                return ""
            return f"{reason}relation {relation.name}({arguments})" + (f" {{ {attributes} }}" if attributes else "")
        values = f" : 1..{relation.levels}" if relation.levels else ""
        guard = relation_guards(self.schema, relation)
        where = f" where {' and '.join(guard)}" if guard else ""
        return f"{reason}predict relation {relation.name}({arguments}){values}{where}"


def _attribute_comment(attribute: ProposedAttribute) -> str:
    what = f"{attribute.distinct} numbers" if attribute.type == "vector" else f"evidence: {attribute.distinct:,} values"
    return what + (f", {attribute.missing:,} missing" if attribute.missing > 0 else "")


def _render_value(value: str) -> str:
    """Return a value of an enumeration in the syntax of the language: a bare name if possible, or a string literal."""
    return value if is_name(value) and not is_reserved(value) else json.dumps(value, ensure_ascii=False)


def _single_line(text: str) -> str:
    """Return a text as one line, with unprintable characters escaped."""
    return escape_unprintable(text).replace("\n", " ")
