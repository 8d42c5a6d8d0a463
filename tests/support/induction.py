"""Feature induction for tests."""

from relcrf.structure.induction import ContrastiveInduction


def induced(model, point, least, most, **settings):
    """Return the best candidates that are not in a model, and their estimated gradients."""
    return ContrastiveInduction(most, **settings).best_candidates(model, point, *model.errors_and_signals(point), least)
