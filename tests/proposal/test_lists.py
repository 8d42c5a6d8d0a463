"""List columns in proposals: their elements become tables of their own, bags or vectors."""

import json

import numpy as np
import pytest

import relcrf
from relcrf.data.dataset import Dataset
from relcrf.execution.memory import DEFAULT_MEMORY
from relcrf.proposal import proposal
from relcrf.proposal.data_profile import profile_data
from relcrf.proposal.draft import analyse_tables
from relcrf.proposal.manifest import ManifestBuilder


def write(folder, **tables):
    folder.mkdir()
    for name, rows in tables.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def articles(n=60):
    """Return articles with authors and references; every tenth reference has another spelling."""
    rng = np.random.default_rng(0)
    rows = []
    for k in range(n):
        cited = [int(each) for each in rng.integers(n, size=k % 4)]
        names = [f"Author {rng.integers(40)}" for _ in range(1 + k % 3)]
        row = {
            "id": f"A{k:03}",
            "topic": "xyz"[k % 3] if k % 2 else None,
            "authors": [{"name": name, "home": {"city": f"C{name[-1]}"}, "emails": [name]} for name in names],
            "references": [f"a-{each}" if each % 10 == 0 else f"A{each:03}" for each in cited],
            "words": [f"w{rng.integers(15)}" for _ in range(3)],
        }
        rows.append(row)
    return rows


def propose(folder, out):
    return proposal.propose(str(folder), out, None, DEFAULT_MEMORY, force=True)


def test_objects_and_references_become_relations(tmp_path):
    rows = articles()
    folder = write(tmp_path / "d", article=rows)
    project = propose(folder, tmp_path / "m.rcrf")
    project.write()
    draft = project.draft
    active = [template.name for template in draft.templates if template.is_active]
    assert draft.analysis.target.name == "Article.topic"
    assert {"word", "article_references", "article_authors_author_name", "same_article_authors_author_name"} <= {
        *active
    }
    dataset = relcrf.Dataset(folder, manifest=tmp_path / "m.toml")
    tables = dataset.tables
    (authors,) = (table for name, table in tables.items() if name == "articleauthors")
    found = dataset.connection.execute(f"SELECT * FROM {authors.scan} AS raw").fetchall()
    expected = [(row["id"], each["name"], each["home"]["city"]) for row in rows for each in row["authors"]]
    assert authors.columns == ("article", "author_name", "author_home_city") and sorted(found) == sorted(expected)
    links = {(row["id"], each) for row in rows for each in row["references"] if each.startswith("A")}
    bindings = {plan.name: plan.bindings for plan in draft.plans}
    assert bindings["article_references"] == sum(one != other for one, other in links)
    wrong = sum(each.startswith("a") for row in rows for each in row["references"])
    assert any(f"lacks {wrong} of" in note and "other spellings" in note for note in draft.notes) and wrong


def test_profile_counts_elements_that_are_not_keys(tmp_path):
    rows = articles()
    (link,) = (each for each in profile_data(str(write(tmp_path / "d", article=rows)), None, DEFAULT_MEMORY).links
               if each.target == "article.id" and each.orphans)  # fmt: skip
    cited = [each for row in rows for each in row["references"]]
    wrong = sum(each.startswith("a") for each in cited)
    assert (link.rows, link.matched, link.orphans) == (len(cited), len(cited) - wrong, wrong)
    assert link.column == "article_references.reference"


def test_lists_of_texts_that_are_not_keys_are_bags(tmp_path):
    rows = [{"id": k, "label": "ab"[k % 2], "tags": [f"t{(k + j) % 7}" for j in range(3)]} for k in range(40)]
    project = propose(write(tmp_path / "d", page=rows), tmp_path / "m.rcrf")
    (template,) = [each for each in project.draft.templates if each.name == "tag"]
    assert "w in p.tags" in template.text.replace("t in", "w in") and project.manifest is None
    assert "tags          : bag of Tag  # several values, 7 distinct ones" in project.draft.text


@pytest.mark.parametrize(("shift", "is_link"), [(0, True), (25, False)])
def test_lists_of_numbers(shift, is_link, tmp_path):
    """Numbers that are all keys, in lists of different lengths, are references; other lists of this kind are not usable."""
    rng = np.random.default_rng(1)
    rows = [
        {"id": k, "label": "ab"[k % 2], "links": [int(each) + shift for each in rng.integers(40, size=k % 5)]}
        for k in range(40)
    ]
    folder = write(tmp_path / "d", page=rows)
    found = analyse_tables(Dataset(folder), None, ManifestBuilder(folder))
    assert [relation.name for relation in found.schema.relations] == ["PageLinks"] * is_link
    excluded = {} if is_link else {"page.links": "its lists of numbers have different lengths"}
    assert dict(found.schema.excluded_columns) == excluded


def test_objects_without_a_manifest_are_left_out(tmp_path):
    folder = write(tmp_path / "d", article=articles())
    found = analyse_tables(Dataset(folder), None, ManifestBuilder(None, is_possible=False))
    assert dict(found.schema.excluded_columns)["article.authors"] == "its cells are lists of objects"
    assert not found.schema.relations
