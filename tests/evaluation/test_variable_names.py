"""Names of variables in commands, including keys that end like an attribute."""

import pytest

import relcrf
from relcrf.errors import RelcrfError
from relcrf.evaluation.variable_names import resolve_variable


def grounding(keys, more=""):
    model = relcrf.parse(f"entity Page {{ predict topic : bool {more} }} template t(p: Page) over p.topic")
    columns = {"id": keys, "topic": [True] * len(keys)} | ({"kind": [True] * len(keys)} if more else {})
    return model.ground(relcrf.Dataset({"page": columns}))


def test_key_that_ends_like_the_attribute():
    found = grounding(["x.topic", "y", "y.topic", "a/b"])
    assert found.variable_name(resolve_variable(found, "Page/x.topic")) == "Page(x.topic).topic"
    assert found.variable_name(resolve_variable(found, "Page/y.topic")) == "Page(y).topic"
    assert found.variable_name(resolve_variable(found, "Page/y.topic.topic")) == "Page(y.topic).topic"
    assert found.variable_name(resolve_variable(found, "Page/a/b")) == "Page(a/b).topic"
    for name in ("Page/nobody", "Page/nobody.topic"):
        with pytest.raises(RelcrfError, match="nobody"):
            resolve_variable(found, name)


def test_ambiguous_attribute_raises_error():
    found = grounding(["x.topic", "y"], "predict kind : bool")
    assert found.variable_name(resolve_variable(found, "Page/y.kind")) == "Page(y).kind"
    for name in ("Page/x.topic", "Page/y"):
        with pytest.raises(RelcrfError):
            resolve_variable(found, name)
    assert found.variable_name(resolve_variable(found, "Page/x.topic.kind")) == "Page(x.topic).kind"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Page/pagge_17", "did you mean 'Page/page_17'?"),
        ("Page/PAGE_7", "did you mean 'Page/page_7'?"),
        ("Page/page_17x.topic", "did you mean 'Page/page_17.topic'?"),
        ("Page/page_17.topci", "did you mean 'Page/page_17.topic'?"),
        ("page/page_17", "did you mean 'Page/page_17'?"),
        ("Customers/page_17", "did you mean 'Page/page_17'?"),
        ("Pag/nobody", "did you mean 'Page'?"),
        ("Other/nobody", "predicted: Page"),
        ("page_17", "did you mean 'Page/page_17'?"),
        ("Page", "write a name such as 'Page/page_0'"),
        ("Page/", "write a name such as 'Page/page_0'"),
        ("Page/somebody else", "write a name such as 'Page/page_0'"),
    ],
)
def test_suggestion_for_unknown_name(name, hint):
    found = grounding([f"page_{k}" for k in range(20)])
    with pytest.raises(RelcrfError) as raised:
        resolve_variable(found, name)
    (diagnostic,) = raised.value.diagnostics
    assert (diagnostic.code, diagnostic.message, diagnostic.hint) == ("E313", f"unknown variable '{name}'", hint)


def test_suggestion_names_the_attribute_if_several_are_predicted():
    found = grounding(["page_1", "page_2"], "predict kind : bool")
    with pytest.raises(RelcrfError, match=r"did you mean 'Page/page_1.kind'"):
        resolve_variable(found, "Page/pagee_1.kind")
