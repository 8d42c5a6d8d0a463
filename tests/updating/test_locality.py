"""The models and backends for which components can be updated separately."""

import pytest

import relcrf
from relcrf.backends.provenance import TrainingProtocol
from relcrf.backends.registry import make_backend
from relcrf.updating.locality import global_model_reason, global_training_reason

DECLARATIONS = """
domain Kind = { a, b }
domain Word = open
entity Page { predict kind : Kind
    words : bag of Word
    size : real
    name : string
    shape : vector }
relation Link(source: Page, target: Page)
template prior(p: Page) over p.kind
"""
CONNECTED = "derive near(p: Page, q: Page) where Link(p, q) or Link(q, p)\n"

LOCAL = (
    "template word(p: Page, w: Word) where w in p.words over p.kind per w",
    "template linked(p: Page, q: Page) where Link(p, q) over p.kind, q.kind",
    "template linked(p: Page, q: Page) where (Link(p, q) or Link(q, p)) and p < q over p.kind, q.kind",
    "template shared(p: Page, q: Page, r: Page) where Link(p, r) and Link(q, r) and p < q over p.kind, q.kind",
    "template count(p: Page) over p.kind by count { q where Link(p, q) }",
    "template without(p: Page) where not Link(p, p) over p.kind",
    CONNECTED + "template near(p: Page, q: Page) where near(p, q) over p.kind, q.kind",
    "rule spread: Link(p, q) and p.kind == a => q.kind == a",
)
GLOBAL = {
    "no row connects": (
        "template same(p: Page, q: Page) where p.name == q.name and p < q over p.kind, q.kind",
        "template word(p: Page, q: Page, w: Word) where w in p.words and w in q.words and p < q over p.kind, q.kind",
        "template not_linked(p: Page, q: Page) where not Link(p, q) and p < q over p.kind, q.kind",
        "template one(p: Page, q: Page, r: Page) where Link(p, q) and r.size == p.size and r != p over p.kind, r.kind",
        "derive near(p: Page, q: Page) where p.name == q.name\n"
        "template near(p: Page, q: Page) where near(p, q) over p.kind, q.kind",
    ),
    "selects nearest neighbours": ("derive near(p: Page, q: Page) = nearest 2 by cosine(p.shape, q.shape)",),
    "may depend on all rows": (
        "template size(p: Page) over p.kind by standardise(p.size)",
        "template size(p: Page) over p.kind by quantiles(p.size, 4)",
    ),
    "is computed from whole tables": (
        "feature large(p: Page) = p.size * 2\ntemplate size(p: Page) over p.kind by large(p)",
    ),
}


@pytest.mark.parametrize("text", LOCAL)
def test_local_models(text):
    assert global_model_reason(relcrf.parse(DECLARATIONS + text).spec) == ""


@pytest.mark.parametrize(("reason", "text"), [(reason, text) for reason, texts in GLOBAL.items() for text in texts])
def test_global_models(reason, text):
    assert reason in global_model_reason(relcrf.parse(DECLARATIONS + text).spec)


@pytest.mark.parametrize(
    ("backend", "settings", "reason"),
    [
        ("ess", {}, ""),
        ("dense", {}, ""),
        ("local", {"unlabelled": "self"}, "unlabelled=self"),
        ("local", {"unary_l2": 0.1}, "unary_l2"),
        ("ess", {"observed_edges": "tree"}, "observed_edges=tree"),
        ("propagate", {}, "each component separately"),
        ("gated", {}, "each component separately"),
    ],
)
def test_backends(backend, settings, reason):
    found = global_training_reason(make_backend(backend, **settings), TrainingProtocol())
    assert (found == "") if reason == "" else (reason in found)


def test_held_out_labels():
    protocol = TrainingProtocol(split="hide=0.1")
    assert global_training_reason(make_backend("ess"), protocol) == "the run holds out labels"
