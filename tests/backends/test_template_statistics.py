"""Statistics of templates in training: counts, homophily, warning W206, and their copy in run folders."""

import pandas as pd
import pytest

import relcrf
from relcrf.backends import run_folder
from relcrf.backends.domains import variable_domains
from relcrf.backends.unseen_templates import unseen_template_warnings

MODEL = """
domain Topic = { x, y }
entity Paper { predict topic : Topic; predict good : bool; predict new : bool }
relation Cites(a: Paper, b: Paper)
template prior(p: Paper) over p.topic
template linked(a: Paper, b: Paper) where Cites(a, b) over a.topic, b.topic
template known(a: Paper, b: Paper) where Cites(a, b) over a.topic == b.topic init 0.5 fixed
template both(p: Paper) over p.good, p.new
"""


def chain(n, labelled, **settings):
    """Train on a chain of n papers, of which the first have the labels x, x, y, y, x, ..."""
    topic = ["xxyy"[k % 4] if k < labelled else None for k in range(n)]
    paper = pd.DataFrame({"id": range(n), "topic": topic, "good": [True] * n, "new": [k < 2 for k in range(n)]})
    data = relcrf.Dataset({"paper": paper, "cites": pd.DataFrame({"a": range(n - 1), "b": range(1, n)})})
    return relcrf.parse(MODEL.replace("; ", "\n")).fit(data, settings.pop("backend", "pseudo"), **settings)


def test_counts_and_homophily():
    prior, linked, known, both = chain(100, 5).learned.template_statistics
    assert (prior.factors, prior.seen, prior.is_relational) == (100, 5, False)
    assert (linked.factors, linked.seen, known.seen, known.is_learned) == (99, 4, 4, False)
    assert (linked.homophily.pairs, linked.homophily.equal) == (4, 2)
    assert linked.homophily.by_chance == pytest.approx((4 / 8) ** 2 + (4 / 8) ** 2)
    assert (both.seen, both.homophily) == (100, None), "two Boolean properties have no common domain"
    assert linked.as_dict()["homophily"]["equal"] == 0.5 and "homophily" not in prior.as_dict()


def test_warning_needs_few_labels_and_learned_weights():
    def warned(*sizes, **settings):
        return [(each.code, each.message) for each in unseen_template_warnings(chain(*sizes, **settings).learned)]

    ((code, message),) = warned(100, 2)
    assert (
        code == "W206"
        and message.startswith("training sees only 1 of 99 factors of 'linked', so")
        and "few labels" in message
    )
    ((_, message),) = warned(100, 1)
    assert "0 of 99" in message and message.endswith("keep their initial values")
    ((_, message),) = warned(100, 1, agreement=0.7)
    assert message.endswith("keep their initial values")
    assert warned(100, 3) == [], "2 of 99 are at least 2 %"
    assert warned(3000, 31) == [], "30 factors suffice"
    assert len(warned(3000, 30)) == 1
    assert warned(100, 1, backend="local") == []


def test_run_folder_contains_the_statistics(tmp_path):
    learned = chain(20, 5).learned
    run_folder.save(learned, tmp_path / "run", {})
    assert run_folder.load(tmp_path / "run").template_statistics == learned.template_statistics


def test_blocks_with_equal_values_share_a_domain():
    text = "domain D = { x, y } entity E { predict a : D\n predict b : D\n predict c : bool\n predict d : bool }"
    model = relcrf.parse(text + "\ntemplate t(e: E) over e.a\n")
    table = pd.DataFrame({"id": [1, 2], "a": ["x", "y"], "b": ["x", "x"], "c": [True, False], "d": [True, True]})
    grounding = model.ground(relcrf.Dataset({"e": table}))
    domains = variable_domains(grounding.blocks)
    assert domains.number.tolist() == [0, 0, 0, 0, 1, 1, 2, 2] and domains.sizes == (2, 2, 2)
