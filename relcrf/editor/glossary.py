"""A line about each word of the language, for hovers and completions."""

from __future__ import annotations

GLOSSARY: dict[str, str] = {
    # Declarations
    "domain": "declares values: `domain D = { a, b }`, a range `1..5`, or `open` for those that the data has",
    "entity": "declares a type of thing, with a table that has a row for each: `entity Page { length : real }`",
    "relation": "declares tuples that the data lists: `relation Link(source: Page, target: Page)`",
    "predict": "makes an attribute or a relation random: observed where the data has a value, queried where it has none",
    "derive": "declares a relation that is computed from others: `derive Near(a: Page, b: Page) where ...`",
    "template": "declares a pattern with weights of its own: one factor for each binding that satisfies `where`",
    "candidates": "declares a template that is outside the model until a structure learner chooses some of its factors",
    "rule": "declares a weighted formula in the way of Markov logic: `rule 1.5 NAME: BODY => HEAD`",
    "gate": "declares the evidence that opens and closes the factors of a template: `gate NAME by ...`",
    "include": 'takes in the declarations of another file of the model\'s folder: `include "common.rcrf"`',
    # Clauses
    "where": "the condition on the evidence for which there is a factor or a tuple",
    "over": "the random attributes whose joint states have weights, or one formula about them",
    "per": "separate weights for each value of these keys",
    "by": "the features that the weights multiply; `1` where there are none",
    "init": "where learning starts: `init 0.5`, or a number for each pattern: `init 0.5, -0.5`",
    "fixed": "learning leaves the weights at `init`",
    "l1": "the strength of a penalty on absolute weights, which makes many of them 0: `l1 0.1`",
    "l2": "the strength of a penalty on squared weights: `l2 1.0`",
    "weights": "names the weights: templates that name the same ones share them",
    "symmetric": "ties a table to its transpose: the order of the two attributes does not matter",
    "hard": "the formula must hold; there is no weight",
    # Parts of declarations
    "latent": "makes an attribute random and never observed",
    "bag": "many values, each with a count: `bag of D`",
    "of": "many values, each with a count: `bag of D`",
    "open": "the values are read from the data",
    "nearest": "the K things that are most alike: `= nearest 5 by cosine(a.v, b.v)`",
    # Expressions
    "and": "both hold",
    "or": "at least one of both holds",
    "not": "it does not hold",
    "in": "a value is one of a bag's: `w in p.words`",
    "true": "the truth value",
    "false": "the truth value",
    # Types
    "real": "a real number",
    "integer": "a whole number",
    "bool": "`true` or `false`",
    "string": "a text",
    "date": 'a day, written `"2024-01-31"`',
    "vector": "real numbers, as many for each thing",
    # Figures over the values that names can take
    "exists": "whether any values satisfy a condition: `exists { Link(q, p) }`",
    "count": "how many values satisfy a condition: `count { q where Link(q, p) }`",
    "sum": "the sum of a number over all values that satisfy a condition: `sum { q.length where Link(q, p) }`",
    "min": "the smallest number of all values that satisfy a condition: `min { q.length where Link(q, p) }`",
    "max": "the largest number of all values that satisfy a condition: `max { q.length where Link(q, p) }`",
    "mean": "the mean of a number over all values that satisfy a condition: `mean { q.length where Link(q, p) }`",
}
