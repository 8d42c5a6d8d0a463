"""The table of the candidates that the backend `auto` compared, and the reason for its choice."""

from __future__ import annotations

from relcrf.cli.output import print_line, print_note, print_table
from relcrf.evaluation.chosen_backend import BackendChoice


def print_choice(choice: BackendChoice) -> None:
    """Print the candidates, best first, and the reason for the choice."""
    if choice.reason or not choice.trials:  # without discrete variables, there is nothing to compare
        if choice.reason:
            print_note(choice.sentence)
        return
    names = ("log_likelihood", "accuracy", "seconds")
    rows = [
        (
            f"{row['backend']} *" if choice.is_chosen(row) else row["backend"],
            row["settings"],
            *(float(row.get(name, float("nan"))) for name in names),
        )
        for row in choice.shown_trials
    ]
    columns = ("backend", "settings", "log-likelihood", "accuracy", "seconds")
    print_table(f"candidates on {choice.labels_text} (*: chosen)", columns, rows)
    if choice.n_omitted:
        print_note(f"{choice.n_omitted:,} worse candidates are not shown; --json lists all")
    for text in choice.rejections:
        print_note(text)
    print_line(choice.sentence)
