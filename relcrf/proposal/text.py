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
    others: list[str],
    commands: Sequence[str],
) -> str:
    """The text of a model file.

    Args:
        name: of the file. others: what else could be predicted. commands: what to run next.
    """
    return _Text(name, scheme, target, pieces).write(others, commands)


class _Text:
    def __init__(self, name: str, scheme: Scheme, target: Target, pieces: list[ProposedTemplate]) -> None:
        self.name, self.scheme, self.target, self.pieces = name, scheme, target, pieces
        taken = [e.name for e in scheme.entities] + [k.name for k in scheme.links] + scheme.domains
        taken += [word for p in pieces for word in p.text.split("(")[0].split()[1:] if p.text.startswith("derive")]
        self.names = Names(taken)
        self.domains = {name: f"domain {name} = open  # values are read from the data" for name in scheme.domains}

    def write(self, others: list[str], commands: Sequence[str]) -> str:
        entities = [self._entity(entity) for entity in self.scheme.entities]
        links = [self._link(link) for link in self.scheme.links]
        head = [f"# {_comment(self.name)}: a first model, proposed from the tables alone. It is yours to change."]
        head += [f"# It predicts {_comment(self.target.name)} ({_comment(self.target.reason)})."]
        if others:
            head.append(f"# It could predict, with --predict: {_comment(', '.join(others))}.")
        parts = ["\n".join(head), "\n".join(self.domains.values()), *entities, *links]
        parts += [f"# {_comment(p.comment)}\n{p.text}" for p in self.pieces if p.is_active]
        text = format_text("\n\n".join(part for part in parts if part) + "\n")
        ending = [
            f"# Left out: {_comment(column)}: {_comment(reason)}." for column, reason in self.scheme.left_out[:20]
        ]
        for piece in self.pieces:
            if not piece.is_active:
                ending += [
                    "",
                    f"# To try: {_comment(piece.comment)}.",
                    *(f"# {line}".rstrip() for line in piece.text.split("\n")),
                ]
        if commands:
            ending += ["", "# Next:", *(f"#   {_comment(command)}" for command in commands)]
        return "\n".join([text, *ending]).strip("\n") + "\n"

    def _entity(self, entity: ProposedEntity) -> str:
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
            return self._domain(attribute)
        if attribute.type == "bag":
            name = self.names.free(camel(attribute.name.removesuffix("s")), camel(f"{attribute.name}_value"))
            self.domains[name] = f"domain {name} = open"
            return f"bag of {name}"
        return attribute.type

    def _domain(self, attribute: ProposedAttribute) -> str:
        name = self.names.free(camel(attribute.name), camel(f"{attribute.name}_value"))
        if attribute.type == "open":
            self.domains[name] = f"domain {name} = open  # values are read from the data"
        else:
            self.domains[name] = f"domain {name} = {{ {', '.join(map(_value, attribute.values))} }}"
        return name

    def _link(self, link: Link) -> str:
        arguments = ", ".join(f"{a.name}: {a.sort}" for a in link.arguments)
        attributes = ", ".join(f"{a.name} : {self._type(a)}" for a in link.attributes)
        about = f"# {_comment(link.reason)}.\n"
        if link is not self.target.link:
            if link.value is not None:
                return ""
            return f"{about}relation {link.name}({arguments})" + (f" {{ {attributes} }}" if attributes else "")
        values = f" : 1..{link.levels}" if link.levels else ""
        guard = guards(self.scheme, link, {id(a): a.name for a in link.arguments})
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
