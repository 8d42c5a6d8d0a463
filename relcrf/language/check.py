"""Whether a specification's declarations fit together: all mistakes, one diagnostic for each."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import replace

from relcrf.errors import Diagnostic, ModelError, Span, listing, suggestion
from relcrf.language.cycles import cycle_through
from relcrf.language.render import expression as render_expression
from relcrf.language.unread import may_follow
from relcrf.language.words import LANGUAGE, RESERVED
from relcrf.model.expressions import (
    Atom,
    Attribute,
    Comparison,
    Connective,
    Expression,
    Function,
    Member,
    Name,
    Not,
    Number,
    Text,
    Truth,
    TupleAttribute,
    children,
    conjuncts,
    walk,
)
from relcrf.model.functions import MEASURES
from relcrf.model.spec import (
    AttributeDeclaration,
    Declaration,
    Derived,
    Entity,
    EnumeratedDomain,
    ModelSpec,
    Nearest,
    Parameter,
    RangeDomain,
    Relation,
    Template,
    folded,
)
from relcrf.model.types import (
    SCALARS,
    Bag,
    Bool,
    DomainType,
    EntityType,
    Integer,
    Real,
    String,
    ValueType,
    Vector,
)
from relcrf.model.typing import Scope, TypeProblem

MAX_RANGE = 1_000_000


_SAID_ONCE = frozenset({"E101", "E102", "E120"})
"""One wrong name is one mistake, wherever else in the model it stands; `E104` within its declaration."""


def check(spec: ModelSpec, problems: Iterable[Diagnostic] = ()) -> list[Diagnostic]:
    """Every mistake and doubt, in the order of the text.

    Args:
        problems: what `read` could not parse. Mistakes that may only follow from these are left out.
    """
    problems = list(problems)
    found = [d for d in _Checker(spec).run() if not may_follow(d, problems)]
    return _once(sorted(found, key=_place), _SAID_ONCE)


def require_valid(spec: ModelSpec, problems: Iterable[Diagnostic] = ()) -> list[Diagnostic]:
    """The warnings of a model without errors.

    Args:
        problems: errors that parsing has already found.

    Raises:
        ModelError: with all errors, of parsing and of checking.
    """
    problems = list(problems)
    found = check(spec, problems)
    errors = problems + [d for d in found if d.is_error]
    if errors:
        raise ModelError(sorted(errors, key=_place))
    return found


def _place(diagnostic: Diagnostic) -> tuple[int, int]:
    span = diagnostic.place
    return (span.line, span.column) if isinstance(span, Span) else (0, 0)


def _once(found: Iterable[Diagnostic], codes: Container[str]) -> list[Diagnostic]:
    """The diagnostics, those of some codes only once for each message, with a note of the other lines."""
    kept: list[Diagnostic] = []
    first: dict[str, int] = {}
    lines: dict[str, list[int]] = {}
    for diagnostic in found:
        if diagnostic.code not in codes or diagnostic.message not in first:
            first.setdefault(diagnostic.message, len(kept))
            kept.append(diagnostic)
        else:
            lines.setdefault(diagnostic.message, []).append(_place(diagnostic)[0])
    for message, others in lines.items():
        k = first[message]
        elsewhere = sorted({line for line in others if line != _place(kept[k])[0]})
        if elsewhere:
            where = "line" if len(elsewhere) == 1 else "lines"
            kept[k] = replace(kept[k], notes=(*kept[k].notes, f"also in {where} {listing(map(str, elsewhere))}"))
    return kept


class _Checker:
    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec

    def run(self) -> Iterator[Diagnostic]:
        yield from self._names()
        for domain in self.spec.domains:
            yield from self._domain(domain)
        for entity in self.spec.entities:
            yield from self._attributes(entity, entity.attributes)
        for relation in self.spec.relations:
            yield from self._parameters(relation)
            yield from self._attributes(relation, relation.attributes)
        yield from self._cycles()
        for derived in self.spec.derived:
            yield from self._derived(derived)
        for template in self.spec.templates:
            yield from self._template(template)
        if not self._predicted():
            yield Diagnostic("E137", "the model predicts nothing", self._end(), "mark an attribute with 'predict'")
        if not self.spec.templates:
            yield Diagnostic(
                "E138", "the model has no template", self._end(), "without templates there is nothing to learn"
            )

    def _predicted(self) -> list[str]:
        return [f"{e.name}.{a.name}" for e in self.spec.entities for a in e.attributes if a.predicted]

    def _end(self) -> Span | None:
        """The end of the text, for what is missing in the whole."""
        source = self.spec.source
        if source is None:
            return None
        lines = source.text.rstrip("\n").split("\n")
        return Span(source, len(lines), len(lines[-1]) + 1, len(lines), len(lines[-1]) + 2)

    # Declarations

    def _names(self) -> Iterator[Diagnostic]:
        seen: dict[tuple[bool, str], Span | None] = {}
        for declaration in self.spec.declarations:
            # Tables are found without case and underscores, so that names must differ in more than that.
            is_template = isinstance(declaration, Template)
            key = (is_template, declaration.name if is_template else folded(declaration.name))
            if key in seen:
                first = seen[key]
                note = (f"the first stands in line {first.line}",) if first else ()
                message = f"'{declaration.name}' is declared twice (names are compared without case and underscores)"
                if is_template or any(d.name == declaration.name for d in self._before(declaration)):
                    message = f"'{declaration.name}' is declared twice"
                yield Diagnostic("E121", message, declaration.span, "give one of them another name", note)
            seen.setdefault(key, declaration.span)
            if declaration.name in (LANGUAGE if isinstance(declaration, Template) else RESERVED):
                message = f"'{declaration.name}' is a word of the language and cannot be a name"
                yield Diagnostic("E139", message, declaration.span)

    def _before(self, declaration: Declaration) -> Iterator[Declaration]:
        """The declarations that stand before one in the text."""
        yield from itertools.takewhile(lambda d: d is not declaration, self.spec.declarations)

    def _domain(self, domain: object) -> Iterator[Diagnostic]:
        if isinstance(domain, RangeDomain) and not 0 <= domain.high - domain.low < MAX_RANGE:
            what = "is empty" if domain.high < domain.low else f"has more than {MAX_RANGE:,} values"
            yield Diagnostic("E134", f"the range {domain.low}..{domain.high} {what}", domain.span, "write low..high")
        if isinstance(domain, EnumeratedDomain):
            yield from self._twice(((value, domain.span) for value in domain.values), "value")

    @staticmethod
    def _twice(
        names: Iterable[tuple[str, Span | None]], what: str, key: Callable[[str], str] = str
    ) -> Iterator[Diagnostic]:
        seen: set[str] = set()
        for name, span in names:
            if key(name) in seen:
                yield Diagnostic("E122", f"the {what} '{name}' stands twice", span, "each must be there once")
            seen.add(key(name))

    def _attributes(
        self, owner: Entity | Relation, attributes: tuple[AttributeDeclaration, ...]
    ) -> Iterator[Diagnostic]:
        yield from self._twice(((a.name, a.span) for a in attributes), "attribute", folded)
        if isinstance(owner, Entity):
            for attribute in attributes:
                if attribute.predicted and folded(attribute.name) == folded(owner.key):
                    message = f"'{attribute.name}' is the key of {owner.name} and cannot be predicted"
                    yield Diagnostic("E123", message, attribute.span, "name another key: entity E(column)")
        arguments = {folded(p.name) for p in owner.parameters} if isinstance(owner, Relation) else set()
        for attribute in attributes:
            if folded(attribute.name) in arguments:
                message = f"'{attribute.name}' is an argument and an attribute of {owner.name}"
                yield Diagnostic("E122", message, attribute.span, "they are columns of one table: rename one")
            name = getattr(attribute.type, "domain", None)
            if name is not None and self.spec.domain(name) is None:
                yield self._unknown_type(name, attribute)
            elif attribute.predicted and isinstance(owner, Relation):
                message = "attributes of tuples cannot be predicted"
                yield Diagnostic("E123", message, attribute.span, "predict an attribute of an entity")
            elif attribute.predicted and not isinstance(attribute.type, DomainType | Bool):
                message = f"an attribute of type {attribute.type} cannot be predicted"
                yield Diagnostic("E123", message, attribute.span, "predict a value of a domain, or bool")
            elif isinstance(owner, Relation) and isinstance(attribute.type, Bag | Vector):
                message = f"attributes of tuples cannot be of type {attribute.type}"
                yield Diagnostic("E123", message, attribute.span, "give it to an entity")

    def _unknown_type(self, name: str, attribute: AttributeDeclaration) -> Diagnostic:
        domains = [d.name for d in self.spec.domains]
        known = domains if isinstance(attribute.type, Bag) else [*SCALARS, *domains]
        message = f"unknown type '{name}'"
        hint = suggestion(name, known) or f"the types are {listing(known, 12)}"
        if self.spec.entity(name):
            message, hint = f"'{name}' is an entity, and attributes hold values", "tie things by a relation"
        elif name in SCALARS:
            message, hint = f"a bag holds values of a domain, and '{name}' is none", "declare one: domain D = open"
        return Diagnostic("E120", message, attribute.span, hint)

    def _parameters(self, declaration: Relation | Derived | Template) -> Iterator[Diagnostic]:
        if not declaration.parameters:
            yield Diagnostic("E136", f"'{declaration.name}' has no arguments", declaration.span)
        what = "binder" if isinstance(declaration, Template) else "argument"
        yield from self._twice(((p.name, p.span) for p in declaration.parameters), what)
        for parameter in declaration.parameters:
            if self.spec.entity(parameter.sort) is None and self.spec.domain(parameter.sort) is None:
                known = [d.name for d in (*self.spec.entities, *self.spec.domains)]
                hint = suggestion(parameter.sort, known) or f"the types are {listing(known)}"
                yield Diagnostic("E120", f"unknown type '{parameter.sort}'", parameter.span, hint)
            if parameter.name in RESERVED:
                message = f"'{parameter.name}' is a word of the language and cannot be a name"
                yield Diagnostic("E139", message, parameter.span)

    def _is_sound(self, parameters: tuple[Parameter, ...]) -> bool:
        return len(parameters) > 0 and all(self.spec.entity(p.sort) or self.spec.domain(p.sort) for p in parameters)

    # Derived relations

    def _cycles(self) -> Iterator[Diagnostic]:
        uses = {
            d.name: {n.relation for n in walk(d.definition) if isinstance(n, Atom)}
            for d in self.spec.derived
            if not isinstance(d.definition, Nearest)
        }
        said: set[str] = set()
        for derived in self.spec.derived:
            cycle = cycle_through(derived.name, uses) if derived.name not in said else []
            if cycle and not said & set(cycle):
                said |= set(cycle)
                message = f"'{derived.name}' is derived from itself"
                hint = "recursion is a part of the language that this version does not have yet"
                yield Diagnostic("E131", message, derived.span, hint, (" -> ".join(cycle),))

    def _derived(self, derived: Derived) -> Iterator[Diagnostic]:
        yield from self._parameters(derived)
        if not self._is_sound(derived.parameters):
            return
        if isinstance(derived.definition, Nearest):
            yield from self._nearest(derived, derived.definition)
            return
        scope = Scope(self.spec, derived.parameters, derived.definition)
        problems = list(self._condition(scope, derived.definition))
        yield from _once(problems, {"E104"})
        if not problems and not self._is_any_obscured(scope):
            yield from self._ties(scope, derived.name, derived.span)

    def _nearest(self, derived: Derived, nearest: Nearest) -> Iterator[Diagnostic]:
        span, measure = nearest.span, nearest.measure
        sorts = {p.sort for p in derived.parameters}
        if len(derived.parameters) != 2 or len(sorts) != 1 or not self.spec.entity(next(iter(sorts))):
            yield Diagnostic("E133", "nearest neighbours are pairs of things of one entity", derived.span)
            return
        if nearest.count < 1:
            yield Diagnostic("E133", "there must be at least one nearest neighbour", span)
            return
        scope = Scope(self.spec, derived.parameters, None)
        kind, problems = self._typed(scope, measure)
        yield from problems
        if kind is None:
            return
        a, b = (p.name for p in derived.parameters)
        arguments = measure.arguments if isinstance(measure, Function) and measure.name in MEASURES else ()
        is_sound = (
            len(arguments) == 2
            and all(isinstance(x, Attribute) for x in arguments)
            and {x.binder for x in arguments if isinstance(x, Attribute)} == {a, b}
            and len({x.attribute for x in arguments if isinstance(x, Attribute)}) == 1
        )
        if not is_sound:
            message = "nearest neighbours need a measure of one vector attribute of both"
            example = f"{MEASURES[0]}({a}.v, {b}.v)"
            yield Diagnostic("E133", message, measure.span, f"write {listing(MEASURES)} of it, such as {example}")

    # Templates

    def _template(self, template: Template) -> Iterator[Diagnostic]:
        yield from self._parameters(template)
        for name, strength in (("l1", template.options.l1), ("l2", template.options.l2)):
            if strength is not None and strength < 0:
                yield Diagnostic("E135", f"the penalty {name} of '{template.name}' is negative", template.span)
        if not self._is_sound(template.parameters):
            return
        scope = Scope(self.spec, template.parameters, template.where)
        problems: list[Diagnostic] = []
        if template.where is not None:
            problems += list(self._condition(scope, template.where))
        problems += list(self._over(scope, template))
        problems += [p for key in template.per for p in self._key(scope, key)]
        problems += [p for feature in template.by for p in self._feature(scope, feature, template)]
        yield from _once(problems, {"E104"})
        if not problems and not self._is_any_obscured(scope):
            yield from self._ties(scope, template.name, template.span)
        if template.options.fixed and template.options.init is None:
            hint = "give the weight with 'init', or leave 'fixed' out"
            yield Diagnostic(
                "W202", f"the weights of '{template.name}' are fixed at 0: it does nothing", template.span, hint
            )

    def _typed(self, scope: Scope, expression: Expression) -> tuple[ValueType | None, list[Diagnostic]]:
        """The type of an expression, or its mistakes: none where only a mistake elsewhere hides its type."""
        problems = [p for part in _parts(expression) for p in self._typed(scope, part)[1]]
        if problems or self._is_obscured(scope, expression):
            return None, problems
        try:
            return scope.type_of(expression), []
        except TypeProblem as problem:
            return None, [problem.diagnostic]

    def _is_obscured(self, scope: Scope, expression: Expression) -> bool:
        """Whether an expression speaks of what a declaration with a mistake of its own declares."""
        for node in walk(expression):
            if isinstance(node, Attribute | TupleAttribute):
                declared = self._declaration_of(scope, node)
                domain = getattr(declared.type, "domain", None) if declared else None
                if domain is not None and self.spec.domain(domain) is None:
                    return True
            if isinstance(node, Atom):
                relation = self.spec.relation(node.relation)
                if relation is not None and not self._is_sound(relation.parameters):
                    return True
            name = node.name if isinstance(node, Name) else node.binder if isinstance(node, Attribute) else None
            if name is not None and name not in scope.sorts and name in self._names_of_unknown(scope):
                return not any(isinstance(n, Atom) and self._is_wrong(n) for n in walk(expression))
        return False

    def _declaration_of(self, scope: Scope, node: Attribute | TupleAttribute) -> AttributeDeclaration | None:
        if isinstance(node, Attribute):
            return scope.attribute_declaration(node, quiet=True)
        relation = self.spec.relation(node.atom.relation)
        return relation.attribute(node.attribute) if isinstance(relation, Relation) else None

    def _is_wrong(self, atom: Atom) -> bool:
        relation = self.spec.relation(atom.relation)
        return relation is None or len(relation.parameters) != len(atom.arguments)

    def _is_any_obscured(self, scope: Scope) -> bool:
        return scope.where is not None and self._is_obscured(scope, scope.where)

    def _names_of_unknown(self, scope: Scope) -> set[str]:
        """The names that stand in atoms of relations that are unknown or take another number of arguments."""
        found: set[str] = set()
        for node in walk(scope.where) if scope.where is not None else ():
            if isinstance(node, Atom) and self._is_wrong(node):
                found |= {a.name for a in node.arguments if isinstance(a, Name)}
        return found

    def _condition(self, scope: Scope, condition: Expression) -> Iterator[Diagnostic]:
        """A condition over evidence: each conjunct is judged alone, so that one mistake hides no other."""
        for part in conjuncts(condition):
            kind, problems = self._typed(scope, part)
            yield from problems
            if kind is None:
                continue
            if not isinstance(kind, Bool):
                yield Diagnostic("E110", "a condition is needed here", part.span, "compare it, or name a relation")
            else:
                yield from self._evidence(scope, part, "a condition")

    def _evidence(self, scope: Scope, expression: Expression, what: str) -> Iterator[Diagnostic]:
        yield from self._tuples_hold(scope, expression)
        for term in scope.random_terms(expression)[:1]:
            message = f"{what} looks at '{term.binder}.{term.attribute}', which is predicted"
            hint = "only 'over' speaks of random attributes; elsewhere use evidence"
            yield Diagnostic("E124", message, term.span, hint)

    def _tuples_hold(self, scope: Scope, expression: Expression) -> Iterator[Diagnostic]:
        """`R(a, b).x` may be read only where `where` says that the tuple is there."""
        if self._names_of_unknown(scope):
            return  # a relation that is misspelt may be this one
        demanded = {part for part in conjuncts(scope.where) if isinstance(part, Atom)}
        for node in walk(expression):
            if isinstance(node, TupleAttribute) and node.atom not in demanded:
                message = f"'where' does not demand the tuple whose '{node.attribute}' is read"
                call = f"{node.atom.relation}({', '.join(render_expression(a) for a in node.atom.arguments)})"
                yield Diagnostic("E113", message, node.span, f"begin it with: where {call} and ...")
                return

    def _binders_only(self, scope: Scope, expression: Expression, clause: str) -> Iterator[Diagnostic]:
        said: set[str] = set()
        for node in walk(expression):
            name = node.binder if isinstance(node, Attribute) else node.name if isinstance(node, Name) else ""
            if name in scope.sorts and name not in scope.binders and name not in said:
                said.add(name)
                message = f"'{name}' is no binder: 'where' only says that there is one"
                sort = scope.sorts[name]
                yield Diagnostic(
                    "E127", message, node.span, f"to use it in '{clause}', add {name}: {sort} to the binders"
                )

    def _over(self, scope: Scope, template: Template) -> Iterator[Diagnostic]:
        is_sound = True
        for item in template.over:
            kind, problems = self._typed(scope, item)
            problems = problems or list(self._binders_only(scope, item, "over"))
            yield from problems
            is_sound = is_sound and kind is not None and not problems
        if not is_sound:
            return
        is_random = [bool(scope.random_terms(item)) for item in template.over]
        if not any(is_random):
            if self._predicted():  # else that is the mistake, and said of the whole model
                hint = f"the predicted attributes are {listing(self._predicted())}"
                message = f"'over' of '{template.name}' has no random attribute"
                yield Diagnostic("E125", message, template.over[0].span, hint)
            return
        for item, random in zip(template.over, is_random, strict=True):
            if len(template.over) > 1 and not (random and isinstance(item, Attribute)):
                message = "'over' is a list of random attributes or a single formula"
                hint = "join formulas with 'and'" if random else "evidence belongs into 'where', 'by' or 'per'"
                yield Diagnostic("E126", message, item.span, hint)
                return
        for k, item in enumerate(template.over):
            if isinstance(item, Attribute) and item in template.over[:k]:
                message = f"the random attribute '{item.binder}.{item.attribute}' stands twice in 'over'"
                yield Diagnostic("E122", message, item.span, "each must be there once")
        if len(template.over) == 1 and not isinstance(template.over[0], Attribute):
            yield from self._formula(scope, template.over[0])

    def _formula(self, scope: Scope, formula: Expression) -> Iterator[Diagnostic]:
        """Only random terms, constants, comparisons and connectives."""
        random = scope.random_terms(formula)
        for node in walk(formula):
            is_evidence = (isinstance(node, Attribute) and node not in random) or (
                isinstance(node, Name) and node.name in scope.sorts
            )
            if is_evidence or isinstance(node, Atom | TupleAttribute | Member):
                yield Diagnostic(
                    "E128", "the formula of 'over' looks at evidence", node.span, "move it to 'where' or 'by'"
                )
                return
            allowed = Attribute | Name | Number | Text | Truth | Comparison | Connective | Not
            if not isinstance(node, allowed) and not _is_number(node):
                message = "the formula of 'over' computes; it can only compare random attributes"
                yield Diagnostic("E128", message, node.span, "use == != < <= > >= with and, or, not, =>, <=>")
                return
        for node in walk(formula):
            if isinstance(node, Comparison):
                yield from self._state_comparison(scope, node)
        kind = scope.type_of(formula)
        if not isinstance(kind, Bool):
            yield Diagnostic("E110", "'over' needs a formula that is true or false", formula.span)

    def _state_comparison(self, scope: Scope, node: Comparison) -> Iterator[Diagnostic]:
        """In a formula, states are compared: both sides are of one domain, and a constant is one of its values."""
        left, right = scope.sides(node)
        for kind, other, side in ((left, right, node.right), (right, left, node.left)):
            if not isinstance(kind, DomainType) or isinstance(side, Name | Text):
                continue
            if isinstance(other, DomainType) and other != kind:
                message = f"a value of {left} is compared with a value of {right}"
                yield Diagnostic("E111", message, node.span, "in 'over', both sides are of one domain")
                return
            if not isinstance(other, DomainType) and scope.constant(side, kind.domain) is None:
                hint = f"in 'over', a value of {kind} is compared with values of {kind}"
                yield Diagnostic("E105", f"this is no value of {kind}", side.span, hint)

    def _key(self, scope: Scope, key: Expression) -> Iterator[Diagnostic]:
        kind, problems = self._typed(scope, key)
        yield from problems
        if kind is None:
            return
        yield from self._binders_only(scope, key, "per")
        yield from self._evidence(scope, key, "'per'")
        is_discrete = isinstance(kind, EntityType | DomainType | Bool | Integer | String)
        if isinstance(key, Name) and key.name not in scope.sorts:
            yield Diagnostic(
                "E127",
                f"'{key.name}' is no binder: it is a value",
                key.span,
                "a key is a binder or an attribute of one",
            )
        elif not isinstance(key, Name | Attribute | TupleAttribute) or not is_discrete:
            hint = "a key is a binder, or an attribute whose type is a domain, bool, integer or string"
            yield Diagnostic("E129", f"'per' cannot separate weights by a {kind}", key.span, hint)

    def _feature(self, scope: Scope, feature: Expression, template: Template) -> Iterator[Diagnostic]:
        kind, problems = self._typed(scope, feature)
        yield from problems
        if kind is None:
            return
        yield from self._binders_only(scope, feature, "by")
        yield from self._evidence(scope, feature, "'by'")
        is_range = isinstance(kind, DomainType) and isinstance(self.spec.domain(kind.domain), RangeDomain)
        if not isinstance(kind, Integer | Real | Bool | Vector | Bag) and not is_range:
            hint = "a feature is a number, a truth value, a vector or a bag; for one weight a value use 'per'"
            yield Diagnostic("E130", f"a {kind} is no feature", feature.span, hint)
        elif isinstance(kind, Bool) and not isinstance(feature, Attribute | TupleAttribute):
            hint = "put the condition into 'where' of a template of its own"
            yield Diagnostic("E130", "a condition is no feature", feature.span, hint)
        elif isinstance(kind, Bag) and (len(template.by) > 1 or template.per or len(scope.binders) > 1):
            hint = "give it a template of its own, over one binder and without 'per'"
            yield Diagnostic("E130", "a bag stands alone in 'by'", feature.span, hint)

    def _ties(self, scope: Scope, name: str, span: Span | None) -> Iterator[Diagnostic]:
        """Binders that nothing connects: values that range over nothing, and cross products."""
        group = {binder: {binder} for binder in scope.sorts}

        def tie(names: set[str]) -> None:
            joined = set().union(*(group[n] for n in names)) if names else set()
            for n in joined:
                group[n] = joined

        bound: set[str] = set()
        for part in conjuncts(scope.where):
            names = {n for n in _names_in(part) if n in group}
            if isinstance(part, Atom | Member) or (isinstance(part, Comparison) and part.operator == "=="):
                tie(names)
            if isinstance(part, Atom | Member):
                bound |= names
            elif isinstance(part, Connective) and part.operator == "or":
                tie(names)
            for node in walk(part):
                if isinstance(node, TupleAttribute):
                    tie({n for n in _names_in(node) if n in group})
                    bound |= {n for n in _names_in(node) if n in group}
        is_tied = True
        for binder, sort in scope.sorts.items():
            # An existential value may be bound inside the one condition that it stands in.
            uses = sum(binder in _names_in(part) for part in conjuncts(scope.where))
            is_local = binder not in scope.binders and uses == 1
            if self.spec.domain(sort) is not None and binder not in bound and not is_local:
                message = f"nothing in '{name}' says which values of {sort} '{binder}' takes"
                hint = f"tie it in 'where' with a relation or a bag: {binder} in thing.bag"
                yield Diagnostic("E132", message, span, hint)
                is_tied = False
        parts = {frozenset(g) for b, g in group.items() if b in scope.binders}
        if is_tied and len(parts) > 1:
            names_of = ["{" + ", ".join(b for b in scope.binders if b in part) + "}" for part in parts]
            combined = " x ".join(sorted(names_of))
            message = f"nothing ties the binders of '{name}' together: it grounds on every combination of {combined}"
            hint = "name a relation in 'where', or an equality; 'relcrf plan' counts the groundings"
            yield Diagnostic("W201", message, span, hint)


def _parts(expression: Expression) -> Iterator[Expression]:
    """The sub-expressions that have a type of their own, whatever stands around them; constants do not."""
    if isinstance(expression, Atom):
        return
    for child in children(expression):
        is_nothing = isinstance(child, Attribute) and not child.binder  # what `in` has instead of a bag that is none
        if not isinstance(child, Name | Number | Text | Truth) and not is_nothing:
            yield child


def _names_in(expression: Expression) -> set[str]:
    names = {node.name for node in walk(expression) if isinstance(node, Name)}
    return names | {node.binder for node in walk(expression) if isinstance(node, Attribute)}


def _is_number(node: Expression) -> bool:
    """A negative number, written with its sign."""
    return isinstance(getattr(node, "operand", None), Number)
