"""Selection of a penalty strength for each candidate space: coordinate descent on the loss of held-out labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

MAX_PASSES = 3
"""Maximum number of passes over the spaces; on Nations, the second pass changes at most one strength."""

LOOK_AHEAD = 2
"""Number of consecutive strengths without improvement after which the path of a space is left."""


def select_strengths(
    paths: Sequence[Sequence[float]], evaluate: Callable[[tuple[float, ...]], float]
) -> tuple[float, ...]:
    """Return one strength per space that minimises the loss, as far as changes of a single space can improve it.

    Each space starts with its first strength. In each pass, every space in turn moves along its path, forwards or
    otherwise backwards, to the best strength, while the strengths of the other spaces are fixed. Loss values are cached.

    Args:
        paths: Strengths of each space in the order of evaluation. From strong to weak, each evaluation can start from
            the result of the previous one, and weak strengths that overfit are not evaluated.
        evaluate: Function that returns the loss on held-out labels for one strength per space.
    """
    losses: dict[tuple[int, ...], float] = {}

    def loss_at(position: tuple[int, ...]) -> float:
        if position not in losses:
            losses[position] = evaluate(tuple(path[k] for path, k in zip(paths, position, strict=True)))
        return losses[position]

    best = (0,) * len(paths)
    for _ in range(MAX_PASSES):
        start = best
        for number, path in enumerate(paths):
            for direction in (1, -1):
                origin = trial = best
                n_stalled = 0
                while n_stalled < LOOK_AHEAD and 0 <= trial[number] + direction < len(path):
                    trial = (*trial[:number], trial[number] + direction, *trial[number + 1 :])
                    if loss_at(best) > loss_at(trial):
                        best, n_stalled = trial, 0
                    else:
                        n_stalled += 1
                if best != origin:
                    break
        if best == start:
            break
    return tuple(path[k] for path, k in zip(paths, best, strict=True))
