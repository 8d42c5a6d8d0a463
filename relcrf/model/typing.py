"""Name resolution and type inference in the clauses of one declaration.

A `NameScope` contains the *binders* (declared variables) and the existential variables of a declaration. It returns the
type of an expression, or raises a `TypeCheckError`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property

from relcrf.errors import Diagnostic, UsageError, listing, suggestion
from relcrf.model import expressions as e
from relcrf.model import spec as s
from relcrf.model import types as t
from relcrf.model.bins import invalid_threshold
from relcrf.model.functions import BASIS_SIZES, FEATURE_FUNCTIONS, FUNCTIONS, NGRAM_LENGTHS, TEXT_SIMILARITIES
from relcrf.model.literals import literal_text, numerically_equal_value
from relcrf.model.nodes import children, walk
from relcrf.model.times import EXAMPLES, PARSERS


class TypeCheckError(Exception):
    """The error raised for an expression that has no type; `diagnostic` contains the reason."""

    def __init__(self, code: str, message: str, node: e.Expression, hint: str | None = None, *notes: str) -> None:
        self.diagnostic = Diagnostic(code, message, node.span, hint, notes)
        super().__init__(message)


class NameScope:
    """The names of one declaration and their types.

    Args:
        spec: the whole model.
        parameters: the binders (declared variables).
        where: the condition; a name in its atoms that is not a binder is an existential variable.
    """

    def __init__(self, spec: s.ModelSpec, parameters: tuple[s.Parameter, ...], where: e.Expression | None) -> None:
        self.spec = spec
        self.binders: dict[str, str] = {}
        for parameter in parameters:  # of two binders with the same name, use the first; the checker reports the second
            self.binders.setdefault(parameter.name, parameter.type_name)
        self.where = where

    def aggregate_scope(self, aggregate: e.Aggregate) -> NameScope:
        """Return the scope inside an aggregate; its binders are this scope's names and the names listed in `count`.

        If only a bag determines the type of a name in the terms, as in `count { x where w in x.words }`, the name is also
        a binder.
        """
        scope = NameScope(self.spec, _to_parameters(self.type_names), aggregate.where)
        terms = [term.name for term in aggregate.terms if isinstance(term, e.Name)]
        counted = {name: scope.existential_types[name] for name in terms if name in scope.existential_types}
        for name in sorted(set().union(*map(e.names_in, aggregate.terms)) - set(scope.type_names)):
            counted |= scope._bag_owner(name)
        return NameScope(self.spec, _to_parameters({**self.type_names, **counted}), aggregate.where)

    def _bag_owner(self, name: str) -> dict[str, str]:
        """Return the only entity type that `name` in `w in name.words` can have, by name; empty if there are several."""
        owners: set[str] = set()
        for node in walk(self.where, descend=lambda node: not isinstance(node, e.Aggregate)):
            if isinstance(node, e.Membership) and node.bag.binder == name:
                element = self.type_names.get(node.element.name) if isinstance(node.element, e.Name) else None
                for entity in self.spec.entities:
                    declared = self.spec.attribute(entity.name, node.bag.attribute)
                    if (
                        declared is not None
                        and isinstance(declared.type, t.Bag)
                        and element in (None, declared.type.domain)
                    ):
                        owners.add(entity.name)
        return {name: owners.pop()} if len(owners) == 1 else {}

    @cached_property
    def existential_types(self) -> dict[str, str]:
        """The entity type or domain of each existential variable, by name."""
        return {name: type_name for name, type_name in self.type_names.items() if name not in self.binders}

    def walk(self, expression: e.Expression) -> Iterator[tuple[NameScope, e.Expression]]:
        """Yield an expression and its descendants in preorder, each with its scope."""
        yield self, expression
        inner = self.aggregate_scope(expression) if isinstance(expression, e.Aggregate) else self
        for child in children(expression):
            yield from inner.walk(child)

    @cached_property
    def type_names(self) -> dict[str, str]:
        """The entity type or domain of each binder, then of each existential variable in order of first occurrence."""
        type_names = dict(self.binders)
        if self.where is None:
            return type_names
        n_known = -1
        while n_known != len(type_names):  # the element type of a bag may follow only from a later atom
            n_known = len(type_names)
            for argument, type_name in self._typed_arguments(self.where, type_names):
                if (
                    isinstance(argument, e.Name)
                    and argument.name not in type_names
                    and self.constant_value(argument, type_name) is None
                ):
                    type_names[argument.name] = type_name
        return type_names

    def _typed_arguments(self, where: e.Expression, type_names: dict[str, str]) -> Iterator[tuple[e.Expression, str]]:
        """Yield each argument of an atom and each element of a membership, with its type name, if the type is known."""
        for node in walk(where, descend=lambda node: not isinstance(node, e.Aggregate)):
            if isinstance(node, e.Atom):
                relation = self.spec.relation(node.relation)
                parameters = relation.parameters if relation is not None else ()
                for argument, parameter in zip(node.arguments, parameters, strict=False):
                    yield argument, parameter.type_name
            elif isinstance(node, e.Membership):
                declared = self.spec.attribute(type_names.get(node.bag.binder, ""), node.bag.attribute)
                if declared is not None and isinstance(declared.type, t.Bag):
                    yield node.element, declared.type.domain

    def constant_value(self, expression: e.Expression, domain: str) -> str | None:
        """Return the domain value that an expression denotes, as it is written in the domain; None if there is none."""
        declared, text = self.spec.domain(domain), literal_text(expression)
        if text is None or (isinstance(expression, e.Name) and not isinstance(declared, s.EnumeratedDomain)):
            return None
        match declared:
            case s.EnumeratedDomain():
                return text if text in declared.values else numerically_equal_value(text, expression, declared.values)
            case s.RangeDomain(_, low, high):
                number = int(text) if re.fullmatch(r"-?\d{1,18}", text, re.ASCII) else None
                return text if number is not None and str(number) == text and low <= number <= high else None
            case s.OpenDomain():
                return text
        return None

    def random_terms(self, expression: e.Expression) -> list[e.Attribute | e.Atom]:
        """Return the distinct random attributes and atoms in an expression, in the order of their first occurrence."""
        terms: list[e.Attribute | e.Atom] = []
        for scope, node in self.walk(expression):
            if isinstance(node, e.Attribute | e.Atom) and node not in terms and scope.is_random(node):
                terms.append(node)
        return terms

    def is_random(self, node: e.Expression) -> bool:
        """Return True if a node is itself a random attribute or an atom of a random relation."""
        if isinstance(node, e.Atom):
            return isinstance(self.spec.relation(node.relation), s.RandomRelation)
        if isinstance(node, e.Attribute):
            declared = self.attribute_declaration(node, quiet=True)
            return declared is not None and declared.is_random
        return False

    def attribute_declaration(self, node: e.Attribute, *, quiet: bool = False) -> s.AttributeDeclaration | None:
        """Return the declaration of `a.x`; if it is missing, return None if `quiet`, else raise a TypeCheckError."""
        type_name = self.type_names.get(node.binder)
        entity = self.spec.entity(type_name) if type_name else None
        declared = self.spec.attribute(entity.name, node.attribute) if entity else None
        if declared is not None or quiet:
            return declared
        if type_name is None:
            raise self._unknown_name_error(node.binder, node)
        if entity is None:
            raise TypeCheckError(
                "E107",
                f"'{node.binder}' is a value of {type_name}, which has no attributes",
                node,
                "only entities have attributes",
            )
        names = [a.name for a in entity.attributes]
        hint = suggestion(node.attribute, names) or (f"{entity.name} has {listing(names)}" if names else None)
        raise TypeCheckError("E101", f"unknown attribute '{node.attribute}' of {entity.name}", node, hint)

    def _unknown_name_error(self, name: str, node: e.Expression, expected: t.ValueType | None = None) -> TypeCheckError:
        names = [*self.type_names, *self.spec.constants, *(t.BOOL_VALUES if expected == t.Bool() else ())]
        if isinstance(expected, t.DomainType | t.String | t.Date | t.Time | t.Datetime):
            return TypeCheckError(
                "E104", f"unknown name '{name}'", node, f'write a value of {expected} in quotes: "{name}"'
            )
        hint = suggestion(name, names) or (
            f"the names here are {listing(self.type_names)}" if self.type_names else _UNTYPED_NAME_HINT
        )
        return TypeCheckError("E104", f"unknown name '{name}'", node, hint)

    def type_of(self, expression: e.Expression, expected: t.ValueType | None = None) -> t.ValueType:
        """Return the type of an expression.

        Args:
            expected: the type that the context requires; it determines the domain of a constant.

        Raises:
            TypeCheckError: if the expression has no type.
        """
        match expression:
            case e.Boolean():
                return t.Bool()
            case e.Number(value):
                return self._constant_type(expression, expected) or (
                    t.Integer() if isinstance(value, int) else t.Real()
                )
            case e.Text():
                return self._constant_type(expression, expected) or self._text_type(expression, expected)
            case e.Name():
                return self._name_type(expression, expected)
            case e.Attribute():
                declared = self.attribute_declaration(expression)
                assert declared is not None
                return declared.type
            case e.Atom(name):
                self._check_arguments(expression)
                if (feature := self.spec.feature(name)) is not None:
                    known = self.spec.feature_types
                    return known[name] if name in known else known.setdefault(name, feature_type(self.spec, feature))
                relation = self.spec.relation(name)
                return relation.type if isinstance(relation, s.RandomRelation) else t.Bool()
            case e.TupleAttribute(atom, name):
                return self._tuple_attribute_type(expression, atom, name)
            case e.FunctionCall():
                return self._function_type(expression)
            case e.Arithmetic() if self.is_elapsed_time(expression):
                return t.Real()
            case e.Arithmetic(_, left, right):
                kinds = [self._require_number(left), self._require_number(right)]
                whole = all(isinstance(k, t.Integer) for k in kinds) and expression.operator != "/"
                return t.Integer() if whole else t.Real()
            case e.UnaryMinus(operand):
                return self._constant_type(expression, expected) or self._require_number(operand)
            case e.Comparison():
                self._check_comparison(expression)
                return t.Bool()
            case e.Membership(element, bag):
                self._check_member(expression, element, bag)
                return t.Bool()
            case e.Not(operand):
                self._require_bool(operand)
                return t.Bool()
            case e.Connective(_, left, right):
                self._require_bool(left)
                self._require_bool(right)
                return t.Bool()
            case e.Aggregate():
                return self._aggregate_type(expression)
        raise AssertionError(f"unknown expression {expression!r}")

    def _aggregate_type(self, node: e.Aggregate) -> t.ValueType:
        inner_scope = self.aggregate_scope(node)
        inner_scope._require_bool(node.where)
        if node.function in ("exists", "count"):
            for term in node.terms:
                if (
                    not isinstance(term, e.Name)
                    or term.name in self.type_names
                    or term.name not in inner_scope.type_names
                ):
                    message = f"'{node.function}' accepts only names that its own 'where' binds"
                    example = "Link(q, p) and q.length > 3" if node.function == "exists" else "q where Link(q, p)"
                    raise TypeCheckError("E141", message, term, f"write: {node.function} {{ {example} }}")
            return t.Integer() if node.function == "count" else t.Bool()
        if len(node.terms) != 1:
            message = f"'{node.function}' takes exactly one number"
            raise TypeCheckError("E141", message, node, f"write: {node.function} {{ q.length where Link(q, p) }}")
        if node.function in ("sum", "mean"):
            kind = inner_scope.type_of(node.terms[0])
            if isinstance(kind, t.Vector | t.Bag):
                return kind
        kind = inner_scope._require_number(node.terms[0])
        return kind if node.function != "mean" else t.Real()

    def _constant_type(self, expression: e.Expression, expected: t.ValueType | None) -> t.ValueType | None:
        """Return the expected domain if the expression is one of its values; None if a domain is not expected."""
        if not isinstance(expected, t.DomainType):
            return None
        if self.constant_value(expression, expected.domain) is not None:
            return expected
        domain = self.spec.domain(expected.domain)
        if domain is None or (isinstance(domain, s.RangeDomain) and isinstance(expression, e.Number | e.UnaryMinus)):
            return None
        raise self._unknown_value_error(expression, expected.domain)

    @staticmethod
    def _text_type(expression: e.Text, expected: t.ValueType | None) -> t.ValueType:
        if not isinstance(expected, t.Date | t.Time | t.Datetime):
            return t.String()
        try:
            PARSERS[expected](expression.value)
        except ValueError:
            hint = f'write a {expected} as "{EXAMPLES[expected]}"'
            raise TypeCheckError("E112", f"'{expression.value}' is not a {expected}", expression, hint) from None
        return expected

    def _unknown_value_error(self, expression: e.Expression, domain: str) -> TypeCheckError:
        declared = self.spec.domain(domain)
        values = declared.values if isinstance(declared, s.EnumeratedDomain) else ()
        text = literal_text(expression)
        text = "this" if text is None else text
        if isinstance(declared, s.RangeDomain):
            hint: str | None = f"{domain} is {declared.low}..{declared.high}"
        else:
            hint = suggestion(text, values) or (f"{domain} has {listing(values)}" if values else None)
        return TypeCheckError("E105", f"'{text}' is not a value of {domain}", expression, hint)

    def _name_type(self, expression: e.Name, expected: t.ValueType | None) -> t.ValueType:
        type_name = self.type_names.get(expression.name)
        if type_name is not None:
            return t.EntityType(type_name) if self.spec.entity(type_name) else t.DomainType(type_name)
        if isinstance(expected, t.DomainType):
            if self.constant_value(expression, expected.domain) is not None:
                return expected
            if isinstance(self.spec.domain(expected.domain), s.EnumeratedDomain):
                raise self._unknown_value_error(expression, expected.domain)
        domains = self.spec.constants.get(expression.name, ())
        if not domains:
            raise self._unknown_name_error(expression.name, expression, expected)
        if len(domains) > 1:
            raise TypeCheckError(
                "E106",
                f"'{expression.name}' is a value of several domains: {listing(domains)}",
                expression,
                "compare it with an attribute to determine its domain",
            )
        return t.DomainType(domains[0])

    def _tuple_attribute_type(self, node: e.TupleAttribute, atom: e.Atom, name: str) -> t.ValueType:
        self._check_arguments(atom)
        declaration = self.spec.attribute(atom.relation, name)
        if declaration is None:
            names = [each.name for each in getattr(self.spec.relation(atom.relation), "attributes", ())]
            hint = suggestion(name, names) or (f"it has {listing(names)}" if names else "it has no attributes")
            raise TypeCheckError("E101", f"unknown attribute '{name}' of {atom.relation}", node, hint)
        return declaration.type

    def _check_arguments(self, atom: e.Atom) -> None:
        relation = self.spec.relation(atom.relation) or self.spec.feature(atom.relation)
        if relation is None:
            relations: tuple[s.AnyRelation | s.Feature, ...] = (
                *self.spec.relations,
                *self.spec.random_relations,
                *self.spec.derived_relations,
                *self.spec.features,
            )
            names = [each.name for each in relations]
            listed = f"the relations are {listing(names)}" if names else "the model does not declare a relation"
            hint = suggestion(atom.relation, [*names, *FUNCTIONS]) or listed
            raise TypeCheckError("E102", f"unknown relation or function '{atom.relation}'", atom, hint)
        parameters = relation.parameters
        if len(atom.arguments) != len(parameters):
            declared = ", ".join(map(str, parameters))
            message = f"{atom.relation} takes {_format_count(len(parameters), 'argument')}, not {len(atom.arguments)}"
            raise TypeCheckError("E108", message, atom, f"it is declared as {atom.relation}({declared})")
        for argument, parameter in zip(atom.arguments, parameters, strict=True):
            self._check_argument(atom, argument, parameter)

    def _check_argument(self, atom: e.Atom, argument: e.Expression, parameter: s.Parameter) -> None:
        if isinstance(argument, e.Name) and argument.name in self.type_names:
            type_name = self.type_names[argument.name]
            if type_name != parameter.type_name:
                required = f"argument '{parameter.name}' of {atom.relation} is a {parameter.type_name}"
                message = f"'{argument.name}' is a {type_name}, but {required}"
                raise TypeCheckError("E109", message, argument, "a name has the same type everywhere in a declaration")
            return
        domain = self.spec.domain(parameter.type_name)
        if domain is None or self.constant_value(argument, parameter.type_name) is None:
            if domain is not None and isinstance(argument, e.Name | e.Number | e.Text | e.UnaryMinus):
                raise self._unknown_value_error(argument, parameter.type_name)
            if isinstance(argument, e.Name):
                raise self._unknown_name_error(argument.name, argument)
            message = f"an argument of {atom.relation} must be a name" + (" or a constant" if domain else "")
            raise TypeCheckError("E109", message, argument, f"'{parameter.name}' has type {parameter.type_name}")

    def _function_type(self, node: e.FunctionCall) -> t.ValueType:
        try:
            signature = FUNCTIONS[node.name]
        except UsageError as error:
            (diagnostic,) = error.diagnostics
            raise TypeCheckError(
                diagnostic.code, diagnostic.message, node, diagnostic.hint, *diagnostic.notes
            ) from None
        if not signature.accepts(len(node.arguments)):
            least = f"{len(signature.required)} or " if signature.n_optional else ""
            expected = f"{least}{_format_count(len(signature.parameters), 'argument')}"
            expected = f"at least {expected}" if signature.is_variadic else expected
            raise TypeCheckError("E108", f"{node.name} takes {expected}, not {len(node.arguments)}", node)
        if node.name in FEATURE_FUNCTIONS:
            return self._feature_function_type(node, signature.parameters[0])
        if node.name in TEXT_SIMILARITIES:
            return self._text_similarity_type(node)
        repeated = signature.parameters[-1:] * (len(node.arguments) - len(signature.parameters))
        for argument, parameter_type in zip(node.arguments, signature.parameters + repeated, strict=True):
            if parameter_type == "number":
                self._require_number(argument)
                continue
            kind = self.type_of(argument, t.Date() if parameter_type == "date" else None)
            if parameter_type == "value":
                self._check_may_be_missing(argument, kind)
            if isinstance(kind, t.Vector) and not isinstance(argument, e.Attribute):
                hint = "use a vector attribute, such as page.pixels"
                raise TypeCheckError("E110", f"{node.name} takes vector attributes", argument, hint)
            if not isinstance(kind, _PARAMETER_TYPES[parameter_type]):
                raise TypeCheckError(
                    "E110", f"{node.name} takes {parameter_type}s, not {_describe_type(kind)}", argument
                )
        if node.name == "bin" and (invalid := invalid_threshold(node)) is not None:
            hint = "write increasing numbers, such as bin(p.length, 10, 100, 1000)"
            raise TypeCheckError("E150", invalid[0], invalid[1], hint)
        return _RESULT_TYPES[signature.result]

    def _check_may_be_missing(self, node: e.Expression, kind: t.ValueType) -> None:
        """Require that the argument of `missing` is an attribute or a computed value, not a condition, name or constant."""
        is_stored = isinstance(node, e.Attribute | e.TupleAttribute)
        is_condition = isinstance(kind, t.Bool) and not is_stored
        if is_condition or isinstance(kind, t.EntityType | t.Vector | t.Bag) or not e.names_in(node):
            found = "a condition" if is_condition else _describe_type(kind) if e.names_in(node) else "a constant"
            message = f"the argument of 'missing' is {found}, which is never missing"
            raise TypeCheckError(
                "E151", message, node, "write an attribute or a function of attributes: missing(p.length)"
            )

    def _feature_function_type(self, node: e.FunctionCall, accepted: str) -> t.ValueType:
        """Return the type of a call of a function that is computed for all entities, such as `standardise(...)`."""
        kind = self.type_of(node.arguments[0])
        name = "number" if self.number_type(kind) is not None else "bag" if isinstance(kind, t.Bag) else str(kind)
        if name not in accepted.split(" or "):
            message = f"{node.name} takes a {accepted}, not {_describe_type(kind)}"
            raise TypeCheckError("E110", message, node.arguments[0])
        for size in node.arguments[1:]:
            if not isinstance(size, e.Number) or isinstance(size.value, float) or size.value not in BASIS_SIZES:
                limits = f"{BASIS_SIZES.start} to {BASIS_SIZES.stop - 1}"
                hint = f"write a constant: {node.name}(p.length, 5)"
                raise TypeCheckError("E152", f"the size of '{node.name}' is not an integer from {limits}", size, hint)
            return t.Vector()
        return t.Real() if name == "number" else kind

    def _text_similarity_type(self, node: e.FunctionCall) -> t.ValueType:
        """Return the type of `tfidf_cosine(...)` or `token_jaccard(...)`."""
        for argument in node.arguments[:2]:
            kind = self.type_of(argument)
            if not isinstance(argument, e.Attribute) or not isinstance(kind, t.String):
                found = "an expression" if isinstance(kind, t.String) else _describe_type(kind)
                hint = "use an attribute of type string, such as page.title"
                raise TypeCheckError(
                    "E110", f"{node.name} takes string attributes of entities, not {found}", argument, hint
                )
        for length in node.arguments[2:]:
            if not isinstance(length, e.Number) or length.value not in NGRAM_LENGTHS or isinstance(length.value, float):
                limits = f"{NGRAM_LENGTHS.start} to {NGRAM_LENGTHS.stop - 1}"
                message = f"the third argument of {node.name} is not an integer from {limits}"
                hint = f"write the number of characters of an n-gram: {node.name}(a.title, b.title, 3)"
                raise TypeCheckError("E110", message, length, hint)
        return t.Real()

    def is_computed(self, node: e.Expression) -> bool:
        """Return True if the value of a valid node is computed for all entities at once, before templates are ground."""
        if isinstance(node, e.Aggregate) and node.function in ("sum", "mean"):
            return isinstance(self.type_of(node), t.Vector | t.Bag)
        if isinstance(node, e.Atom):
            return self.spec.feature(node.relation) is not None
        return isinstance(node, e.FunctionCall) and node.name in FEATURE_FUNCTIONS

    def is_elapsed_time(self, node: e.Arithmetic) -> bool:
        """Return True if a node is the difference of two times or of two datetimes, which is a number of seconds.

        Raises:
            TypeCheckError: if only one operand is a time or datetime, or an operand has no type.
        """
        attributes = [o for o in (node.left, node.right) if isinstance(o, e.Attribute | e.TupleAttribute)]
        if node.operator != "-" or not any(isinstance(self.type_of(a), t.Time | t.Datetime) for a in attributes):
            return False
        kinds = self.operand_types(node)
        if kinds[0] != kinds[1]:
            message = f"{_describe_type(kinds[1])} is subtracted from {_describe_type(kinds[0])}"
            raise TypeCheckError("E111", message, node, "subtract a time from a time, or a datetime from a datetime")
        return True

    def _require_number(self, node: e.Expression) -> t.ValueType:
        kind = self.type_of(node)
        number = self.number_type(kind)
        if number is None:
            raise TypeCheckError("E110", f"expected a number, not {_describe_type(kind)}", node)
        return number

    def number_type(self, kind: t.ValueType) -> t.ValueType | None:
        """Return the numeric type of a type's values, such as integer for a range; None if they are not numbers."""
        if isinstance(kind, t.DomainType) and isinstance(self.spec.domain(kind.domain), s.RangeDomain):
            return t.Integer()
        return kind if isinstance(kind, t.Integer | t.Real) else None

    def _require_bool(self, node: e.Expression) -> None:
        kind = self.type_of(node)
        if not isinstance(kind, t.Bool):
            raise TypeCheckError("E110", f"expected a condition, not {_describe_type(kind)}", node)

    def _check_member(self, node: e.Membership, element: e.Expression, bag: e.Attribute) -> None:
        if not bag.binder:
            raise TypeCheckError("E110", "the right operand of 'in' must be a bag, such as page.words", bag)
        kind = self.type_of(bag)
        if not isinstance(kind, t.Bag):
            raise TypeCheckError("E110", f"the right operand of 'in' must be a bag, not {_describe_type(kind)}", bag)
        element_type = self.type_of(element, t.DomainType(kind.domain))
        if element_type != t.DomainType(kind.domain):
            message = f"the bag contains values of {kind.domain}, not {_describe_type(element_type)}"
            raise TypeCheckError("E111", message, element)

    def operand_types(self, node: e.Comparison | e.Arithmetic) -> tuple[t.ValueType, t.ValueType]:
        """Return the types of the operands of a comparison or difference; a constant has the type of the other operand.

        Raises:
            TypeCheckError: if an operand has no type.
        """
        left, right = node.left, node.right
        if self.is_constant(left) and not self.is_constant(right):
            kind_right = self.type_of(right)
            return self.type_of(left, kind_right), kind_right
        kind_left = self.type_of(left, self._attribute_type(right))
        return kind_left, self.type_of(right, kind_left)

    def _check_comparison(self, node: e.Comparison) -> None:
        left, right = node.left, node.right
        kind_left, kind_right = self.operand_types(node)
        for kind, operand in ((kind_left, left), (kind_right, right)):
            if isinstance(kind, t.Vector | t.Bag):
                raise TypeCheckError("E110", f"{_describe_type(kind)} cannot be compared", operand)
        if kind_left != kind_right and None in (self.number_type(kind_left), self.number_type(kind_right)):
            message = f"{_describe_type(kind_left)} is compared with {_describe_type(kind_right)}"
            raise TypeCheckError("E111", message, node, "both operands of a comparison must have the same type")
        if isinstance(kind_left, t.Bool) and node.operator not in ("==", "!="):
            raise TypeCheckError("E111", f"booleans have no order for '{node.operator}'", node, "use == or !=")

    def is_constant(self, node: e.Expression) -> bool:
        """Return True if a node is a literal, or a bare name that is not a variable of the scope."""
        if isinstance(node, e.UnaryMinus):
            return isinstance(node.operand, e.Number)
        return isinstance(node, e.Number | e.Text | e.Boolean) or (
            isinstance(node, e.Name) and node.name not in self.type_names
        )

    def _attribute_type(self, node: e.Expression) -> t.ValueType | None:
        """Return the type of an attribute or atom; None for other nodes, which do not determine a constant's domain."""
        try:
            return self.type_of(node) if isinstance(node, e.Attribute | e.Atom) else None
        except TypeCheckError:
            return None


def is_binary_feature(node: e.Expression) -> bool:
    """Return True if an expression of type bool may be a feature: an attribute, or a call of `missing`."""
    is_missing = isinstance(node, e.FunctionCall) and node.name == "missing"
    return is_missing or isinstance(node, e.Attribute | e.TupleAttribute)


def feature_type(spec: s.ModelSpec, feature: s.Feature) -> t.ValueType:
    """Return the type of the values of a feature that is not computed from itself.

    Raises:
        TypeCheckError: if the definition has no type.
    """
    scope = NameScope(spec, feature.parameters, None)
    definition = feature.definition
    if isinstance(definition, s.LearnedDefinition):
        is_number = definition.kind == "regressor" or isinstance(scope.type_of(definition.target), t.Bool)
        return t.Real() if is_number else t.Vector()
    value = definition.operand if isinstance(definition, s.FeaturePropagation) else definition
    kind = scope.type_of(value)
    is_number = scope.number_type(kind) is not None or (isinstance(kind, t.Bool) and is_binary_feature(value))
    return t.Real() if is_number else kind


_RESULT_TYPES: dict[str, t.ValueType] = {
    "real": t.Real(),
    "integer": t.Integer(),
    "bool": t.Bool(),
    "string": t.String(),
}


_PARAMETER_TYPES: dict[str, type | tuple[type, ...]] = {
    "vector": t.Vector,
    "text": t.String,
    "date": (t.Date, t.Datetime),
    "time": (t.Time, t.Datetime),
    "value": object,
}


_UNTYPED_NAME_HINT = "every name of a rule must occur in a relation, which determines its type"


def _to_parameters(type_names: Mapping[str, str]) -> tuple[s.Parameter, ...]:
    return tuple(s.Parameter(name, type_name) for name, type_name in type_names.items())


def _describe_type(kind: t.ValueType) -> str:
    """Return a type as text for messages, with its article."""
    if isinstance(kind, t.DomainType):
        return f"a value of {kind.domain}"
    return {"bool": "a boolean", "integer": "an integer", "real": "a real number", "string": "a string"}.get(
        str(kind), f"a {kind}"
    )


def _format_count(n: int, noun: str) -> str:
    return f"{n} {noun}" + ("" if n == 1 else "s")
