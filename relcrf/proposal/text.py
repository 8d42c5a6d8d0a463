"""A proposed model as text, with comments that say what each line is for."""

from __future__ import annotations

import json
from collections.abc import Sequence

from relcrf.language.format import format_text
from relcrf.language.words import is_name, is_reserved
from relcrf.printable import printable
from relcrf.proposal.names import Names, camel
from relcrf.proposal.scheme import Link, ProposedAttribute, ProposedEntity, Scheme
from relcrf.proposal.target import Target
from relcrf.proposal.templates import ProposedTemplate, guards


def model_text(
    name: str,
    scheme: Scheme,
    target: Target,
    pieces: list[ProposedTemplate],
    others: Sequence[str],
    commands: Sequence[str],
) -> str:
    """Return the text of a model file.

    Args:
        name: of the file. others: what else could be predicted. commands: what to run next.
    """
    declarations = _Declarations(scheme, target, pieces)
    entities = [declarations.entity(entity) for entity in scheme.entities]
    links = [declarations.link(link) for link in scheme.links]
    head = [f"# {_comment(name)}: a first model, proposed from the tables alone. It is yours to change."]
    head += [f"# It predicts {_comment(target.name)} ({_comment(target.reason)})."]
    if others:
        head.append(f"# It could predict, with --predict: {_comment(', '.join(others))}.")
    parts = ["\n".join(head), "\n".join(declarations.domains.values()), *entities, *links]
    parts += [f"# {_comment(p.comment)}\n{p.text}" for p in pieces if p.is_active]
    text = format_text("\n\n".join(part for part in parts if part) + "\n")
    ending = [f"# Left out: {_comment(column)}: {_comment(reason)}." for column, reason in scheme.left_out[:20]]
    for piece in pieces:
        if not piece.is_active:
            ending += ["", f"# To try: {_comment(piece.comment)}."]
            ending += [f"# {line}".rstrip() for line in piece.text.split("\n")]
    if commands:
        ending += ["", "# Next:", *(f"#   {_comment(command)}" for command in commands)]
    return "\n".join([text, *ending]).strip("\n") + "\n"


class _Declarations:
    """The declarations of a scheme as text, with the domains of their attributes."""

    def __init__(self, scheme: Scheme, target: Target, pieces: list[ProposedTemplate]) -> None:
        self.scheme, self.target = scheme, target
        derived = [word for p in pieces for word in p.text.split("(")[0].split()[1:] if p.text.startswith("derive")]
        self.names = Names([*scheme.names, *derived])
        self.domains = {name: f"domain {name} = open  # values are read from the data" for name in scheme.domains}

    def entity(self, entity: ProposedEntity) -> str:
        key = "" if entity.key == "id" else f"({entity.key})"
        lines = []
        for attribute in entity.attributes:
            is_target = self.target.entity is entity and attribute in self.target.attributes
            role = "predict " if is_target else ""
            comment = "random: a missing value is a query" if is_target else _about(attribute)
            lines.append(f"    {role}{attribute.name} : {self._type(attribute)}  # {comment}")
        lines += [
            f"    {bag.name} : bag of {bag.domain}  # many values, {bag.distinct:,} different ones"
            for bag in entity.bags
        ]
        body = " {\n" + "\n".join(lines) + "\n}" if lines else ""
        return f"# {_comment(entity.reason)}.\nentity {entity.name}{key}{body}"

    def _type(self, attribute: ProposedAttribute) -> str:
        if attribute.type in ("enumeration", "open"):
            name = self.names.free(camel(attribute.name), camel(f"{attribute.name}_value"))
            values = f"{{ {', '.join(map(_value, attribute.values))} }}"
            is_open = attribute.type == "open"
            self.domains[name] = f"domain {name} = {'open  # values are read from the data' if is_open else values}"
            return name
        if attribute.type == "bag":
            name = self.names.free(camel(attribute.name.removesuffix("s")), camel(f"{attribute.name}_value"))
            self.domains[name] = f"domain {name} = open"
            return f"bag of {name}"
        return attribute.type

    def link(self, link: Link) -> str:
        arguments = ", ".join(f"{a.name}: {a.sort}" for a in link.arguments)
        attributes = ", ".join(f"{a.name} : {self._type(a)}" for a in link.attributes)
        about = f"# {_comment(link.reason)}.\n"
        if link is not self.target.link:
            if link.value is not None:
                return ""
            return f"{about}relation {link.name}({arguments})" + (f" {{ {attributes} }}" if attributes else "")
        values = f" : 1..{link.levels}" if link.levels else ""
        guard = guards(self.scheme, link)
        where = f" where {' and '.join(guard)}" if guard else ""
        return f"{about}predict relation {link.name}({arguments}){values}{where}"


def _about(attribute: ProposedAttribute) -> str:
    what = f"{attribute.distinct} numbers" if attribute.type == "vector" else f"evidence: {attribute.distinct:,} values"
    return what + (f", {attribute.missing:,} missing" if attribute.missing > 0 else "")


def _value(value: str) -> str:
    """A value of an enumeration: a name as it is, all else as a text."""
    return value if is_name(value) and not is_reserved(value) else json.dumps(value, ensure_ascii=False)


def _comment(text: str) -> str:
    """A text that stays on its line."""
    return printable(text).replace("\n", " ")
