"""Export of a learned structure as a model file, in which each chosen candidate is a template that can be edited."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from relcrf.backends.learned_model import LearnedModel
from relcrf.errors import Diagnostic, UsageError
from relcrf.language.render import render_declaration
from relcrf.model.expressions import (
    Expression,
    Name,
    Text,
    conjuncts,
    names_in,
    optional_conjunction,
    substitute_constants,
)
from relcrf.model.spec import ModelSpec, Template

_SCORE_FORMATS = {"gain": ".4g", "support": ".0f"}
"""The number format of each vector with scores of candidates, by the name of the vector."""


def require_exportable(spec: ModelSpec) -> None:
    """Reject models with candidates whose keys are entities; call this before training.

    Raises:
        UsageError: If a key of candidates is an entity, which a model file cannot name.
    """
    for node in spec.flatten().templates:
        types = {p.name: p.type_name for p in node.parameters}
        for key in node.per if node.is_candidate else ():
            if isinstance(key, Name) and spec.domain(types.get(key.name, "")) is None:
                message = f"key '{key.name}' of candidates '{node.name}' is an entity, which a model file cannot name"
                hint = "omit --export-model; the run folder contains all chosen candidates"
                raise UsageError(Diagnostic("E392", message, node.span, hint))


def render_learned_model(learned: LearnedModel) -> str:
    """Return the text of the model with templates for the chosen candidates instead of declarations of candidates.

    The weights of the candidates become initial weights of the templates. Comments contain the gain and the support of
    a candidate (see `structure/gains.py`) if the backend computes these scores, and the strength (the norm of the
    weights) if the candidate has several weights. The weights of the other templates are not exported. See
    `require_exportable` for the supported models.
    """
    spec = learned.spec.flatten()
    taken = {node.name for node in spec.templates}
    parts = []
    for node in spec.declarations:
        if isinstance(node, Template) and node.is_candidate:
            parts += _render_candidates(node, learned, taken)
        else:
            parts.append(render_declaration(node))
    return "\n\n".join(parts) + "\n"


def _render_candidates(node: Template, learned: LearnedModel, taken: set[str]) -> list[str]:
    """Return the texts of the templates for one declaration of candidates, in descending order of weight norm."""
    matching = [(block, t) for block, t in enumerate(learned.templates) if t.name == node.name]
    if not matching:
        return []
    ((block, info),) = matching
    assert info.keys is not None
    weights = learned.layout.matrix(learned.vectors["weights"], block)
    scores = {
        name: learned.layout.matrix(learned.vectors[name], block) for name in _SCORE_FORMATS if name in learned.vectors
    }
    strengths = np.linalg.norm(weights, axis=1)
    texts = []
    for number, key in enumerate(np.argsort(-strengths, kind="stable")):
        template = _instantiate_key(node, info.keys.values[key], _unique_name(f"{node.name}_{number + 1}", taken))
        starts = tuple(round(float(weight), 6) for weight in weights[key])
        init = starts if len(starts) > 1 else starts[0]
        comments = [f"strength {strengths[key]:.4g}"] if len(starts) > 1 else []
        comments += [f"{name} {matrix[key, 0]:{_SCORE_FORMATS[name]}}" for name, matrix in scores.items()]
        text = render_declaration(replace(template, options=replace(node.options, init=init)))
        texts.append(f"{text}  # {', '.join(comments)}" if comments else text)
    return texts


def _instantiate_key(node: Template, key: tuple[str, ...], name: str) -> Template:
    """Return the template of the candidate with the given keys."""
    constants: dict[str, Expression] = {
        item.name: Text(value) for item, value in zip(node.per, key, strict=True) if isinstance(item, Name)
    }
    parameters = tuple(p for p in node.parameters if p.name not in constants)
    conditions = [part for part in conjuncts(node.where) if len(names_in(part) & set(constants)) < len(names_in(part))]
    return replace(
        node,
        name=name,
        parameters=parameters,
        over=tuple(substitute_constants(item, constants) for item in node.over),
        where=optional_conjunction([substitute_constants(part, constants) for part in conditions]),
        per=(),
        is_candidate=False,
    )


def _unique_name(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name
