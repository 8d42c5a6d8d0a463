"""One-line descriptions of the keywords of the language, for hovers and completion."""

from __future__ import annotations

GLOSSARY: dict[str, str] = {
    # Declarations
    "domain": "declares a set of values: `domain D = { a, b }`, a range `1..5`, or `open` for the values in the data",
    "entity": "declares an entity type, whose table has one row per entity: `entity Page { length : real }`",
    "relation": "declares an observed relation, whose tuples are in the data: `relation Link(source: Page, target: Page)`",
    "predict": "makes an attribute or relation random: observed if the data has a value, otherwise a query variable",
    "derive": "declares a relation computed from other relations: `derive Near(a: Page, b: Page) where ...`",
    "feature": "declares a value of each entity, for `by`: `feature smooth(p: Page) = propagate 2 p.words along Link`",
    "template": "declares a pattern with weights: one factor per binding that satisfies `where`",
    "candidates": "declares a template whose factors are in the model only if structure learning selects them",
    "rule": "declares a weighted formula, as in Markov logic: `rule 1.5 NAME: BODY => HEAD`",
    "gate": "declares the evidence that opens and closes the factors of a template: `gate NAME by ...`",
    "include": 'includes the declarations of another file in the model\'s folder: `include "common.rcrf"`',
    # Clauses
    "where": "condition on the evidence under which a factor or tuple exists",
    "over": "random attributes whose joint states have weights, or one formula over random attributes",
    "per": "keys; each combination of their values has separate weights",
    "by": "features that are multiplied by the weights; default `1`",
    "init": "initial weights: `init 0.5`, or one number per pattern: `init 0.5, -0.5`",
    "fixed": "keeps the weights at `init` during learning",
    "l1": "strength of the L1 penalty, which makes weights sparse: `l1 0.1`",
    "l2": "strength of the L2 penalty: `l2 1.0`",
    "weights": "name of the weights; templates whose weights have the same name share the weights",
    "symmetric": "ties the weight table to its transpose: the order of the two attributes does not matter",
    "hard": "hard constraint: the formula must hold",
    # Parts of declarations
    "latent": "makes an attribute random and unobserved",
    "bag": "multiset of values: `bag of D`",
    "of": "multiset of values: `bag of D`",
    "open": "domain whose values are read from the data",
    "nearest": "the K most similar entities: `= nearest 5 by cosine(a.v, b.v)`",
    "propagate": "propagation along links: `= propagate 2 p.words along Link normalised symmetric`",
    "along": "relation whose tuples, in both directions, are the links of a propagation",
    "normalised": "normalisation of a propagation: `symmetric` or `mean`; without it, values are summed",
    # Expressions
    "and": "conjunction",
    "or": "disjunction",
    "not": "negation",
    "in": "membership of a value in a bag: `w in p.words`",
    "true": "truth value",
    "false": "truth value",
    # Types
    "real": "real number",
    "integer": "integer",
    "bool": "`true` or `false`",
    "string": "string",
    "date": 'date, written `"2024-01-31"`',
    "time": 'time of day, written `"10:30:00"`',
    "datetime": 'date and time in UTC, written `"2024-01-31 10:30:00"`',
    "vector": "vector of real numbers, of the same length for each entity",
    # Aggregates over bindings
    "exists": "whether any binding satisfies a condition: `exists { Link(q, p) }`",
    "count": "number of bindings that satisfy a condition: `count { q where Link(q, p) }`",
    "sum": "sum of a number over all bindings that satisfy a condition: `sum { q.length where Link(q, p) }`",
    "min": "minimum of a number over all bindings that satisfy a condition: `min { q.length where Link(q, p) }`",
    "max": "maximum of a number over all bindings that satisfy a condition: `max { q.length where Link(q, p) }`",
    "mean": "mean of a number over all bindings that satisfy a condition: `mean { q.length where Link(q, p) }`",
}
