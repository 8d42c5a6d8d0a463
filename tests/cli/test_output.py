"""Tables in the terminal: titles, headers and line breaks at a width of 80 characters."""

import re

import pytest
from rich.console import Console

from relcrf.cli import output


@pytest.fixture
def printed(monkeypatch, capsys):
    """Return a function that prints a table and returns its lines."""

    def lines(*arguments, width=80):
        monkeypatch.setattr(output, "console", Console(width=width))
        output.print_table(*arguments)
        return capsys.readouterr().out.splitlines()

    return lines


def cells(lines):
    """Return the texts of each line of the body of a table, without borders and spaces."""
    return [[cell.strip() for cell in re.split("[│┃]", line)[1:-1]] for line in lines if line[0] in "│┃"]


def test_title_is_one_line_and_empty_header_is_omitted(printed):
    title = "a title that is longer than the table"
    assert printed(title, ("", ""), [("a", 1)]) == [title, "┌───┬───┐", "│ a │ 1 │", "└───┴───┘"]
    assert len(printed(title, ("name", ""), [("a", 1)])) == 6


def test_words_are_not_broken_if_all_columns_fit(printed):
    row = ("customers_devices_operating", 3113, 1216, "39.1%", "93% [91%, 95%]", "69%")
    found = printed("t", ("template", "factors", "seen", "fraction", "equal labels", "by chance"), [row])
    assert max(map(len, found)) <= 80
    texts = cells(found)
    assert row[0] in texts[-3][0] and [line[4] for line in texts[-3:]] == ["93%", "[91%,", "95%]"]
    words = {word for line in texts for cell in line for word in cell.split()}
    assert {"3,113", "1,216", "39.1%", "69%", "chance"} <= words


def test_rows_with_long_words_are_stacked(printed):
    row = ("customers_devices_operating_system", "x" * 90, "evidence from the share_time_at_night of a Customers")
    found = printed("t", ("template", "code", "description"), [row, (row[0], "yes", "no")])
    assert max(map(len, found)) <= 80 and not any("…" in line for line in found)
    texts = " ".join(" ".join(line[0] for line in cells(found)).split())
    assert texts == f"template description code {row[0]} {row[2]} {'x' * 74} {'x' * 16} {row[0]} no yes"


def test_words_are_not_broken_more_often_than_necessary(printed):
    found = printed("t", ("parts",), [("standardise(c.share_time_at_night) +0.04",)], width=24)
    assert [line[0] for line in cells(found)[1:]] == ["standardise(c.share_", "time_at_night) +0.04"]


def test_numbers_are_not_broken_beside_narrow_texts(printed):
    columns = ("template", "key", "feature", "pattern", "weight", "standard error", "z", "support")
    row = (
        "same_customers_devices",
        "Schröder",
        "standardise(c.share)",
        "a.Fraud == b.Fraud",
        "-0.6021",
        "0.7171",
        "-0.8396",
        "-86.21",
    )
    found = printed("t", columns, [row])
    assert max(map(len, found)) <= 80
    words = [" ".join(line).split() for line in cells(found)]
    numbers = ["-0.6021", "0.7171", "-0.8396", "-86.21"]
    assert ["same_customers_devices"] in words and any(line[-4:] == numbers for line in words)
    narrow = printed("t", columns, [row], width=30)
    assert max(map(len, narrow)) <= 30 and {*row[:3], *numbers} <= {
        word for line in cells(narrow) for word in line[0].split()
    }


def test_repeated_heading_of_stacked_rows_is_printed_once(printed):
    rows = [("same_customers_devices", 1, 2.0), ("same_customers_devices", 3, 4.0), ("", 5, 6.0)]
    found = cells(printed("t", ("template", "support", "weight"), rows, width=28))
    assert found == [
        ["template"],
        ["support  weight"],
        ["same_customers_devices"],
        ["1  2.0000"],
        ["3  4.0000"],
        ["-"],
        ["5  6.0000"],
    ]
