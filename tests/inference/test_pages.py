"""The examples of the pages on methods, run."""

import re
from pathlib import Path

import pytest

import relcrf

PAGES = Path(relcrf.__file__).parent.parent / "docs" / "inference"


@pytest.mark.parametrize("page", ["mean_field.md", "gibbs.md", "map.md"])
def test_the_example_holds(page):
    (text,) = re.findall(r"^```python\n(.*?)^```", (PAGES / page).read_text(), re.MULTILINE | re.DOTALL)
    exec(compile(text, page, "exec"), {})
