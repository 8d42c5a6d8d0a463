"""What `render` prints reads back as the same specification, with no bracket too many."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relcrf.errors import ModelError
from relcrf.language.parse import parse
from relcrf.language.render import expression, render
from relcrf.language.words import RESERVED
from relcrf.model import expressions as e
from relcrf.model import spec as s
from relcrf.model.functions import FUNCTIONS, MEASURES
from relcrf.model.types import SCALARS, Bag, DomainType

ROOT = Path(__file__).parents[2]

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True).filter(lambda name: name not in RESERVED)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
reals = st.floats(min_value=0, allow_infinity=False, allow_nan=False)
attributes = st.builds(e.Attribute, names, names)


def several(one: st.SearchStrategy, least: int = 1) -> st.SearchStrategy:
    return st.lists(one, min_size=least, max_size=3).map(tuple)


def atoms(inner: st.SearchStrategy) -> st.SearchStrategy:
    return st.builds(e.Atom, names, several(inner))


leaves = st.one_of(
    st.builds(e.Name, names),
    st.builds(e.Number, st.integers(0, 10**20) | reals),
    st.builds(e.Text, texts),
    st.builds(e.Truth, st.booleans()),
    attributes,
)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(e.Connective, st.sampled_from(["and", "or", "=>", "<=>"]), inner, inner),
        st.builds(e.Comparison, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), inner, inner),
        st.builds(e.Arithmetic, st.sampled_from(["+", "-", "*", "/"]), inner, inner),
        st.builds(e.Not, inner),
        st.builds(e.Negative, inner),
        st.builds(e.Member, inner, attributes),
        st.builds(e.Function, st.sampled_from(sorted(FUNCTIONS)), several(inner)),
        atoms(inner),
        st.builds(e.TupleAttribute, atoms(inner), names),
    ),
    max_leaves=12,
)
types = st.one_of(st.sampled_from(list(SCALARS.values())), st.builds(DomainType, names), st.builds(Bag, names))
declared = several(st.builds(s.AttributeDeclaration, names, types, st.booleans()), 0)
parameters = several(st.builds(s.Parameter, names, names))
nearest = st.builds(
    s.Nearest,
    st.integers(0, 99),
    st.builds(e.Function, st.sampled_from(MEASURES), st.tuples(attributes, attributes)),
)
strengths = st.none() | reals
options = st.builds(s.Options, strengths | reals.map(lambda x: -x), st.booleans(), strengths, strengths)
declarations = st.one_of(
    st.builds(s.EnumeratedDomain, names, several(names | texts | st.from_regex(r"-?[0-9]{1,3}(\.5)?", fullmatch=True))),
    st.builds(s.RangeDomain, names, st.integers(-99, 99), st.integers(-99, 99)),
    st.builds(s.OpenDomain, names),
    st.builds(s.Entity, names, declared, names | st.just("id")),
    st.builds(s.Relation, names, parameters, declared),
    st.builds(s.Derived, names, parameters, trees | nearest),
    st.builds(
        s.Template, names, parameters, several(trees), st.none() | trees, several(trees, 0), several(trees, 0), options
    ),
)
specs = st.builds(s.ModelSpec, several(declarations, 0))


@settings(max_examples=300, deadline=None)
@given(specs)
def test_round_trip(spec: s.ModelSpec) -> None:
    text = render(spec)
    assert parse(text) == spec
    assert render(parse(text)) == text


@settings(max_examples=200, deadline=None)
@given(trees)
def test_no_bracket_can_be_left_out(tree: e.Expression) -> None:
    text = expression(tree)
    pairs, opened, is_quoted = [], [], False
    for k, c in enumerate(text):
        is_quoted ^= c == '"' and (len(text[:k]) - len(text[:k].rstrip("\\"))) % 2 == 0
        if is_quoted or c not in "()":
            continue
        if c == "(":
            opened.append(k)
        elif (start := opened.pop()) == 0 or not (text[start - 1].isalnum() or text[start - 1] == "_"):
            pairs.append((start, k))
    for start, stop in pairs:
        bare = text[:start] + " " + text[start + 1 : stop] + " " + text[stop + 1 :]
        assert _over(bare) != (tree,), f"{text} needs no brackets at {start}"


def _over(text: str) -> tuple[e.Expression, ...] | None:
    try:
        return parse(f"template t(a: E) over {text}").templates[0].over
    except ModelError:
        return None


@pytest.mark.parametrize("path", sorted((ROOT / "models").glob("*.rcrf")), ids=lambda path: path.stem)
def test_shipped_model(path: Path) -> None:
    spec = parse(path.read_text(encoding="utf-8"))
    assert parse(render(spec)) == spec


def test_canonical_text() -> None:
    text = (
        'domain D = { a, "b c", 1 }\n\nentity E {\n    predict x : D\n    w : bag of W\n}\n\n'
        "derive N(a: E, b: E) = nearest 5 by cosine(a.v, b.v)\n\n"
        "template t(a: E, b: E)\n    where N(a, b) and (a.l > 1 or not b.l - 1 == 2)\n    over a.x == b.x\n"
        "    by 1, -a.l * 2\n    l2 0.5\n    fixed\n"
    )
    assert render(parse(text)) == text
