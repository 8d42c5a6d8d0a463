"""Candidates that feature induction finds."""

from relcrf.structure.induction import ContrastiveInduction


def induced(model, point, least, most, **settings):
    """Return the best candidates that are not in a model, and their gradients as they were estimated."""
    return ContrastiveInduction(most, **settings).best_candidates(model, point, *model.errors_and_signals(point), least)
