"""Hypothesis strategies of arbitrary specifications, valid or not."""

from __future__ import annotations

from hypothesis import strategies as st

from relcrf.language.keywords import is_reserved
from relcrf.model import expressions as e
from relcrf.model import spec as s
from relcrf.model.functions import AGGREGATES, FUNCTIONS, VECTOR_MEASURES
from relcrf.model.types import SCALARS, Bag, DomainType

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True).filter(lambda name: not is_reserved(name))
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
    st.builds(e.Boolean, st.booleans()),
    attributes,
)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(e.Connective, st.sampled_from(["and", "or", "=>", "<=>"]), inner, inner),
        st.builds(e.Comparison, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), inner, inner),
        st.builds(e.Arithmetic, st.sampled_from(["+", "-", "*", "/"]), inner, inner),
        st.builds(e.Not, inner),
        st.builds(e.UnaryMinus, inner),
        st.builds(e.Membership, inner, attributes),
        st.builds(e.FunctionCall, st.sampled_from(sorted(FUNCTIONS)), several(inner)),
        atoms(inner),
        st.builds(e.TupleAttribute, atoms(inner), names),
        st.builds(e.Aggregate, st.sampled_from(AGGREGATES), several(inner, 0), inner),
    ),
    max_leaves=12,
)
ranges = st.builds("{}..{}".format, st.integers(-9, 9), st.integers(-9, 9))
types = st.one_of(st.sampled_from(list(SCALARS.values())), st.builds(DomainType, names | ranges), st.builds(Bag, names))
declared = several(
    st.builds(s.AttributeDeclaration, names, types, st.booleans())
    | st.builds(s.AttributeDeclaration, names, types, latent=st.booleans())
    | st.builds(s.AttributeDeclaration, names | st.just("time"), types, is_time=st.booleans()),
    0,
)
limits = st.none() | st.builds(e.Name, names)
parameters = several(st.builds(s.Parameter, names, names | ranges))
nearest = st.builds(
    s.NearestNeighbours,
    st.integers(0, 99),
    st.builds(e.FunctionCall, st.sampled_from(VECTOR_MEASURES), st.tuples(attributes, attributes)),
)
propagations = st.builds(s.FeaturePropagation, st.integers(0, 9), trees, names, st.just("") | names)
strengths = st.none() | reals
signed = reals | reals.map(lambda x: -x)
starts = st.none() | signed | st.lists(signed, min_size=2, max_size=4).map(tuple)
options = st.builds(s.WeightOptions, starts, st.booleans(), strengths, strengths, st.none() | names)
declarations = st.one_of(
    st.builds(s.EnumeratedDomain, names, several(names | texts | st.from_regex(r"-?[0-9]{1,3}(\.5)?", fullmatch=True))),
    st.builds(s.RangeDomain, names, st.integers(-99, 99), st.integers(-99, 99)),
    st.builds(s.OpenDomain, names),
    st.builds(s.Entity, names, declared, names | st.just("id")),
    st.builds(s.Relation, names, parameters, declared),
    st.builds(s.DerivedRelation, names, parameters, trees | nearest, limits),
    st.builds(s.Feature, names, parameters, trees | propagations, as_of=limits),
    st.builds(s.RandomRelation, names, parameters, types, st.none() | trees),
    st.builds(
        s.Template,
        names,
        parameters,
        several(trees),
        st.none() | trees,
        several(trees, 0),
        several(trees, 0),
        options,
        symmetric=st.booleans(),
        is_candidate=st.booleans(),
        as_of=limits,
    ),
    st.builds(
        s.Rule, st.none() | names, trees, st.none() | signed, per=several(trees, 0), options=options, as_of=limits
    ),
    st.builds(s.Rule, st.none() | names, trees, is_hard=st.booleans(), per=several(trees, 0), options=options),
    st.builds(s.Gate, names, several(trees)),
)
specs = st.builds(s.ModelSpec, several(declarations, 0))
