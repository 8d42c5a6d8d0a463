"""Warnings about relational templates of which training sees almost no factor."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from relcrf.backends.learned_model import LearnedModel
from relcrf.errors import Diagnostic, listing

MIN_SEEN_FACTORS = 30
"""Number of factors that suffices to learn a weight; with 30 pairs, the 95 % interval of the fraction of equal labels
is at most 0.34 wide."""

MIN_SEEN_FRACTION = 0.02
"""Fraction of the factors that suffices for a small graph. If training sees fewer, at least 98 % of the factors of a
prediction have weights that were learned from almost no label."""


BACKENDS_WITH_PROPAGATION = ("propagate", "smooth")
"""Backends that use the links of relational templates without weights."""


def unseen_template_warnings(learned: LearnedModel) -> Iterator[Diagnostic]:
    """Yield W206 for the learned weights of relational templates of which training sees almost no factor.

    These are fewer than `MIN_SEEN_FACTORS` factors and less than `MIN_SEEN_FRACTION` of the factors, counted over all
    templates that share the weights.
    """
    if learned.backend in ("local", *BACKENDS_WITH_PROPAGATION):
        return
    for weights in dict.fromkeys(each.weights for each in learned.template_statistics):
        sharing = [each for each in learned.template_statistics if each.weights == weights and each.factors]
        if not any(each.is_relational and each.is_learned for each in sharing):
            continue
        seen, factors = (sum(getattr(each, name) for each in sharing) for name in ("seen", "factors"))
        if seen < MIN_SEEN_FACTORS and seen < MIN_SEEN_FRACTION * factors:
            names = listing(f"'{each.name}'" for each in sharing)
            message = f"training sees only {seen:,} of {factors:,} factors of {names}"
            is_initial = _has_initial_weights(learned, weights)
            effect = (
                "its weights keep their initial values" if is_initial else "its weights are learned from few labels"
            )
            hint = "label linked entities, or use --backend propagate or smooth, which learn no weights of links"
            if not seen:
                hint = f"{hint}; --backend dense --set unlabelled=marginal sums over unknown values"
            yield Diagnostic("W206", f"{message}, so that {effect}", hint=hint)


def _has_initial_weights(learned: LearnedModel, name: str) -> bool:
    """Return True if all weights have their initial values: the declared ones, or those of the setting `agreement`."""
    layout = learned.layout
    block = next(k for k, block in enumerate(layout.blocks) if block.name == name)
    initial, weights = (layout.matrix(v, block) for v in (layout.initial(), np.asarray(learned.vectors["weights"])))
    agreement = getattr(learned.configure_backend(), "agreement", 0.0)
    has_prior = bool(agreement) and not initial.any() and bool(np.isin(weights, (0.0, agreement)).all())
    return has_prior or np.array_equal(weights, initial)
