"""Candidates that feature induction finds."""

from relcrf.structure.induction import Induced


def induced(model, point, least, most, **settings):
    """Return the best candidates that are not in a model, and their gradients as they were estimated."""
    return Induced(most, **settings).best(model, point, *model.errors_and_signals(point), least)
