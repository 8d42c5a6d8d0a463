"""Summaries of templates over predicted numbers in hovers."""

import pytest
from houses import MIXED, NEAR

from relcrf.editor.template_summary import summarize_template
from relcrf.language.parse import parse


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "size",
            "For every h (House): two weights: one for the mean and one for the logarithm of the precision of `h.price`; "
            "separate weights for each feature: `1` and `h.size`.",
        ),
        (
            "kind",
            "For every h (House): two weights, for each state of `h.kind`: one for the mean and one for the logarithm of the "
            "precision of `h.price`.",
        ),
        (
            "near",
            "For every a (House) and b (House) where `Near(a, b)`: two weights, which link `a.price` and `b.price`: one for "
            "their difference and one for their sum; separate weights for each feature: `1` and `a.size`.",
        ),
    ],
)
def test_weights_of_numbers(name, expected):
    spec = parse(MIXED + NEAR)
    (template,) = (template for template in spec.templates if template.name == name)
    assert summarize_template(template, spec) == expected
