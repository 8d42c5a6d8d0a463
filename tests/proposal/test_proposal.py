"""Proposals for tables of many shapes: the inferred schema, and models that ground on them."""

import gc
import shlex
import sqlite3
from types import SimpleNamespace

import numpy as np
import pytest
from tables import small_web, write_tables
from typer.testing import CliRunner

import relcrf
from relcrf.cli.commands import app
from relcrf.data.binding import bind
from relcrf.data.dataset import Dataset
from relcrf.errors import UsageError
from relcrf.execution.memory import DEFAULT_MEMORY
from relcrf.graph.features import Dense
from relcrf.proposal import draft, profile, proposal, trial
from relcrf.proposal.proposal import analyse_source


def propose(folder, out, predicted=None, *, force=False):
    made = proposal.propose(str(folder), out, predicted, DEFAULT_MEMORY, force=force)
    made.write()
    return made


def analyse(folder, predicted=None):
    """Return the schema and the target of a proposal, and its manifest, without a model."""
    return analyse_source(str(folder), predicted, DEFAULT_MEMORY)


@pytest.fixture
def out(tmp_path):
    return tmp_path / "model.rcrf"


def names(project):
    return [p.name for p in project.draft.templates if p.is_active]


def roles(project):
    return {f.table: f.role for f in project.draft.analysis.schema.findings}


def test_web_has_entity_bag_and_relation(tmp_path, out):
    project = propose(small_web(tmp_path / "web"), out)
    assert project.draft.analysis.target.name == "Page.category" and project.manifest is None
    assert "missing for 12 of 60" in project.draft.analysis.target.reason
    assert roles(project) == {"page": "entity Page", "page_words": "bag Page.words", "link": "relation Link"}
    assert names(project)[:2] == ["prior", "word"] and {"link", "co_link"} <= set(names(project))
    assert (project.draft.n_variables, project.draft.n_labelled) == (60, 48)
    model = relcrf.load(out)
    assert model.warnings == () and out.read_text() == project.draft.text
    found = model.fit(relcrf.Dataset(project.data), "ess").predict(relcrf.Dataset(project.data))
    assert len(found.table()) >= 12


@pytest.mark.slow
def test_propose_model_writes_no_files(tmp_path):
    folder = small_web(tmp_path / "web")
    before = sorted(tmp_path.rglob("*"))
    found = draft.propose_model(relcrf.Dataset({path.stem: path for path in folder.glob("*.csv")}))
    assert str(found).startswith("predicts Page.category (5 values, ") and sorted(tmp_path.rglob("*")) == before
    assert "# Next" not in found.text and found.model.to_rcrf() == relcrf.parse(found.text).to_rcrf()
    link = draft.propose_model(relcrf.Dataset(folder), "Link")
    assert str(link).startswith("predicts Link (its tuples are listed in a table); templates prior, ")


@pytest.mark.slow
def test_columns_named_like_keywords(tmp_path, out):
    rows = [{"id": k, "label": "xy"[k % 2], "predict": "pq"[k % 2], "where": k / 3, "latent": k % 2} for k in range(12)]
    project = propose(write_tables(tmp_path / "d", thing=rows), out)
    assert names(project) == ["prior", "predict_", "where_", "latent_"] and project.draft.n_variables == 12
    data = relcrf.Dataset({"thing": {name: [row[name] for row in rows] for name in rows[0]}})
    assert draft.propose_model(data, "thing.label").plans[1].bindings == 12


def test_numeric_columns_are_references_only_by_name(tmp_path, out):
    # Counts and words are also numbers from 0, and equal keys of pages by chance.
    rng = np.random.default_rng(1)
    page = [{"id": k, "label": "ab"[k % 2], "visits": int(rng.integers(40))} for k in range(40)]
    word = [{"page": int(rng.integers(40)), "word": int(rng.integers(12))} for _ in range(200)]
    link = [{"src": int(rng.integers(40)), "dst": int(rng.integers(40))} for _ in range(60)]
    project = propose(write_tables(tmp_path / "d", page=page, page_word=word, link=link), out)
    assert roles(project)["page_word"] == "bag Page.words"
    assert [a.name for a in project.draft.analysis.schema.entities[0].attributes] == ["label", "visits"]
    assert "log1p(p.visits)" in project.draft.text


def test_attribute_table_of_numbers_and_sequence(tmp_path, out):
    rng = np.random.default_rng(2)
    letter = [{"id": k, "word": k // 4, "position": k % 4, "label": "xyz"[k % 3], "fold": k % 2} for k in range(48)]
    pixel = [{"letter": k} | {f"p{r}_{c}": int(rng.integers(2)) for r in range(2) for c in range(3)} for k in range(48)]
    folder = write_tables(tmp_path / "d", letter=letter, pixel_wide=pixel)
    project = propose(folder, out)
    assert names(project) == ["prior", "pixel", "step"]
    manifest = out.with_suffix(".toml")
    assert project.manifest is not None and project.manifest[0] == manifest and project.data == str(folder)
    assert f"--data {folder} --manifest {manifest}" in project.commands[0] and "--manifest" not in project.commands[-1]
    assert not out.with_name(f".{out.stem}.partial.toml").exists() and {p.suffix for p in folder.iterdir()} == {".csv"}
    assert {p.name: p.bindings for p in project.draft.plans} == {"prior": 48, "pixel": 48, "step": 36}
    assert any("--split fold" in command for command in project.commands)
    assert ("letter.fold", "a split of the rows: use it with --split") in project.draft.analysis.schema.excluded_columns
    # The folder as a dataset is unchanged: the manifest is located beside the model.
    assert set(relcrf.Dataset(folder).tables) == {"letter", "pixelwide"}


@pytest.mark.slow
def test_tables_without_key(tmp_path, out):
    rows = [{"sentence": k // 5, "position": k % 5, "word": f"w{k % 7}", "tag": "NV"[k % 2]} for k in range(60)]
    project = propose(write_tables(tmp_path / "d", train=rows, test=rows[:20]), out)
    assert (
        project.draft.analysis.target.name == "Train.tag"
        and "step" in names(project)
        and "before_word" in names(project)
    )
    assert roles(project)["test"] == "left out"
    flat = [{"height": k / 3, "colour": "rgb"[k % 3], "class": "uv"[k % 2]} for k in range(30)]
    project = propose(write_tables(tmp_path / "flat", iris=flat), tmp_path / "flat.rcrf")
    assert project.draft.analysis.target.name == "Iris.class" and names(project) == ["prior", "height", "colour"]
    assert project.draft.n_variables == 30


@pytest.mark.slow
def test_entities_without_table(tmp_path, out):
    people = [f"p{k}" for k in range(20)]
    tables = {
        "student": [{"person": p} for p in people[:12]],
        "teacher": [{"person": p} for p in people[12:]],
        "stage": [{"person": p, "stage": ["early", "late"][k % 2]} for k, p in enumerate(people[:10])],
        "advises": [{"teacher": people[12 + k % 8], "student": people[k]} for k in range(12)],
        "sameperson": [{"a0": p, "a1": p} for p in people],
        "wrote": [{"title": f"t{k % 9}", "person": people[k % 20]} for k in range(40)],
    }
    folder = write_tables(tmp_path / "d", **tables)
    project = propose(folder, out)
    assert project.draft.analysis.target.name == "Person.stage" and project.draft.n_variables == 20
    assert roles(project)["sameperson"] == "left out" and roles(project)["student"] == "relation Student"
    other = propose(folder, tmp_path / "advises.rcrf", "advises")
    # Only teachers advise, and only students are advised.
    assert other.draft.n_variables == 8 * 12 and other.draft.n_labelled == 8 * 12
    assert "common_wrote" in names(other)
    with pytest.raises(UsageError, match="E373"):
        propose(folder, tmp_path / "x.rcrf", "person.name")


def test_relation_with_truth_values(tmp_path, out):
    nation = [{"id": k, "name": f"n{k}"} for k in range(5)]
    trait = [{"id": k, "name": f"t{k}"} for k in range(4)]
    has = [{"nation": n, "trait": t, "value": (n + t) % 2} for n in range(5) for t in range(4) if (n, t) != (0, 0)]
    project = propose(write_tables(tmp_path / "d", nation=nation, trait=trait, has=has), out)
    assert project.draft.analysis.target.name == "Has" and names(project) == ["prior", "together"]
    assert (project.draft.n_variables, project.draft.n_labelled) == (20, 19)  # an unlisted tuple is a query


def test_numbered_columns_with_gaps_become_levels(tmp_path, out):
    rng = np.random.default_rng(3)
    rating = [
        {"user": f"u{u}"} | {f"j{j}": round(rng.normal(), 2) if rng.random() < 0.8 else None for j in range(4)}
        for u in range(30)
    ]
    project = propose(write_tables(tmp_path / "d", rating=rating), out)
    assert project.draft.n_variables == 120 and 0 < project.draft.n_labelled < 120
    assert "predict relation RatingValue(user: Rating, item: Item) : 1..5" in project.draft.text


@pytest.mark.slow
def test_references_between_entity_tables(tmp_path, out):
    molecule = [{"id": k, "active": k % 2} for k in range(8)]
    atom = [{"atom": f"a{k}", "molecule": k // 4, "element": "cho"[k % 3]} for k in range(32)]
    bond = [{"molecule": k // 4, "src": f"a{k}", "dst": f"a{k + 1}", "kind": 1 + k % 2} for k in range(31) if k % 4 < 3]
    project = propose(write_tables(tmp_path / "d", molecule=molecule, atom=atom, bond=bond), out)
    assert project.draft.analysis.target.name == "Molecule.active" and "atom_molecule_element" in names(project)
    bonded = propose(tmp_path / "d", tmp_path / "m.rcrf", "atom.element")
    assert "Bond(a, b).kind" in bonded.draft.text
    assert ("bond.molecule", "determined by src and dst") in bonded.draft.analysis.schema.excluded_columns


def test_names_and_values_are_not_parsed_as_model_text(tmp_path, out):
    odd = 'x } entity Evil { predict y : bool } # "'
    person = [
        {
            "id": k,
            odd: ["a\nb", "it's } \" #"][k % 2],
            "per": "uv"[k % 2],
            "{t}": k % 2,
            "émile 2": k / 7,
            "": "pq"[k % 2],
        }
        for k in range(20)
    ]
    folder = write_tables(tmp_path / "d", **{"the person's; DROP": person})
    project = propose(folder, out)
    spec = relcrf.load(out).spec
    assert [e.name for e in spec.entities] == ["ThePersonSDrop"] and project.draft.n_variables == 20
    attributes = {a.name for a in spec.entities[0].attributes}
    assert {"per", "t", "emile_2"} <= attributes and "y" not in attributes


def shops_and_sales(*, extra_shop=None, first_sale="s0"):
    shops = [{"Shop ID": f"s{k}", "kind": "ab"[k % 2]} for k in range(100)] + ([extra_shop] if extra_shop else [])
    sales = [{"sale": k, "shop": f"s{k % 100}", "good": "yn"[k % 2]} for k in range(200)]
    sales[0]["shop"] = first_sale
    return {"shop": shops, "sale": sales}


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """Return the proposal for shops and sales without invalid rows."""
    folder = write_tables(tmp_path_factory.mktemp("clean") / "d", **shops_and_sales())
    project = propose(folder, folder.with_suffix(".rcrf"))
    assert not project.draft.notes and project.draft.analysis.schema.relations
    return project


REPEATED_KEY = {"extra_shop": {"Shop ID": "s3", "kind": "b"}}
UNKNOWN_SHOP = {"first_sale": "s777"}


@pytest.mark.parametrize(
    ("changes", "notes", "lines"),
    [
        (
            REPEATED_KEY,
            [
                "shop.Shop ID is the key although 's3' stands in rows 4 and 101: "
                'the manifest keeps the first row (duplicates = "first")',
                "shop: dropped 1 row with the key of another row: 's3' in rows 4 and 101 (duplicates = \"first\")",
            ],
            {"shop": 'duplicates = "first"  # 1 of 101 rows with the Shop ID of another row'},
        ),
        (
            UNKNOWN_SHOP,
            [
                "sale.shop refers to shop.Shop ID although 's777' in row 1 is unknown: "
                'the manifest drops this link (orphans = "drop")',
                "sale_shop: dropped 1 row without a known Sale or Shop entity: '0', 's777' (orphans = \"drop\")",
            ],
            {"sale_shop": 'orphans = "drop"  # 1 of 200 rows without a known shop'},
        ),
    ],
)
def test_manifest_repairs_rows_that_prevent_a_key_or_a_reference(changes, notes, lines, clean, tmp_path, out):
    messy = propose(write_tables(tmp_path / "messy", **shops_and_sales(**changes)), out)
    assert [*messy.draft.notes] == notes and roles(messy) == roles(clean)
    sections = {name: text for name, _, text in (s.partition("]\n") for s in messy.manifest[1].split("[tables."))}
    for name, section in sections.items():
        assert [x for x in section.splitlines() if "  # " in x] == ([lines[name]] if name in lines else [])
    sizes = messy.draft.grounding.bound.sizes
    assert sizes == clean.draft.grounding.bound.sizes == {"Shop": 100, "Sale": 200}
    n_links = messy.draft.grounding.bound.count_rows("rel.SaleShop")
    assert n_links == (199 if changes is UNKNOWN_SHOP else 200)


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        (REPEATED_KEY, "shop.Shop ID would be the key of shop, but 's3' stands in rows 4 and 101"),
        (UNKNOWN_SHOP, "sale.shop would refer to shop.Shop ID, which has no 's777' (row 1)"),
    ],
)
def test_without_manifest_the_rows_that_prevent_a_key_or_a_reference_are_named(changes, note, tmp_path, out):
    folder = write_tables(tmp_path / "messy", **shops_and_sales(**changes))
    (folder / "dataset.toml").write_text('[tables.shop]\nfile = "shop.csv"\n[tables.sale]\nfile = "sale.csv"\n')
    project = propose(folder, out)
    assert project.manifest is None
    assert [n.removesuffix("; correct these rows, and run relcrf new again") for n in project.draft.notes] == [note]


def test_row_without_key_is_named_but_not_repaired(tmp_path, out):
    changes = {"extra_shop": {"Shop ID": "", "kind": "a"}}
    project = propose(write_tables(tmp_path / "messy", **shops_and_sales(**changes)), out)
    note = "shop.Shop ID would be the key of shop, but it is empty in row 101"
    assert [n.removesuffix("; correct these rows, and run relcrf new again") for n in project.draft.notes] == [note]


def test_queries_of_the_manifest_read_the_first_row_of_each_key(tmp_path, out):
    """The entry that a query reads names the key; here the query joins the attributes of two tables."""
    tables = shops_and_sales(extra_shop={"Shop ID": " s3", "kind": "b"})
    area = [{"shop": f"s{k}", "area": k % 3 + 0.5} for k in range(100)]
    project = propose(write_tables(tmp_path / "d", **tables, area=area), out)
    assert roles(project)["area"] == "attributes of Shop" and 'key = "Shop ID"' in project.manifest[1]
    bound = project.draft.grounding.bound
    assert [(repair.count, repair.example) for repair in bound.repairs] == [(1, "'s3' in rows 4 and 101")]
    assert bound.sizes["Shop"] == 100
    assert bound.connection.execute("""SELECT count("x.area"), count(*) FROM "ent.Shop" """).fetchall() == [(100, 100)]


def firms(n_unknown=0, *, is_number=False):
    """Return a table of firms and a table of recommendations, without English names."""
    name = int if is_number else "K{:03}".format
    firma = [{"kunde": name(k), "region": ("Nord", "Süd")[k % 2], "klasse": "ABC"[k % 3]} for k in range(120)]
    empfehlung = [{"von": name(k % 120), "an": name(k * 7 % 119)} for k in range(300)]
    for row in empfehlung[:n_unknown]:
        row["an"] = name(999)
    return {"firma": firma, "empfehlung": empfehlung}


@pytest.mark.parametrize("n_unknown", [0, 3])
def test_pairs_of_references_are_links_whatever_their_names(n_unknown, tmp_path, out):
    project = propose(write_tables(tmp_path / "d", **firms(n_unknown)), out)
    assert roles(project) == {"firma": "entity Firma", "empfehlung": "relation Empfehlung"}
    assert project.draft.analysis.schema.entities[0].key == "kunde"
    assert project.draft.grounding.bound.count_rows("rel.Empfehlung") == len(
        {(r["von"], r["an"]) for r in firms(n_unknown)["empfehlung"] if r["an"] != "K999"}
    )
    assert ('orphans = "drop"  # 3 of 300 rows' in str(project.manifest)) == bool(n_unknown)


def test_pairs_with_many_unknown_values_or_of_numbers_do_not_refer_to_a_table(tmp_path, out):
    project = propose(write_tables(tmp_path / "many", **firms(4)), out)
    assert roles(project)["firma"] == "attributes of An" and "orphans" not in project.manifest[1]
    analysis, _ = analyse(write_tables(tmp_path / "numbers", **firms(is_number=True)))
    assert not analysis.schema.relations


PAIRS = {"kunde": ("von", "an"), "client": ("de", "vers"), "cliente": ("origen", "destino"), "member": ("who", "whom")}


def entities_and_pairs(table, pairs, *, key=int, n=120):
    """Return a table of entities with ages, and the table `link` of pairs."""
    rows = [{"id": key(k), "klasse": "ABC"[k % 3], "alter": 18 + k * 7 % 60} for k in range(1, n + 1)]
    return {table: rows, "link": [dict(zip(PAIRS[table], pair, strict=True)) for pair in pairs]}


def links_of(folder, tables):
    """Return the references of the table `link` in a proposal for tables, as pairs (column, entity type)."""
    return references(analyse(write_tables(folder, **tables))[0].schema)


def references(schema):
    return [(a.column, a.type_name) for r in schema.relations if r.table == "link" for a in r.arguments]


@pytest.mark.parametrize("key", [int, "K{:03}".format], ids=["numbers", "texts"])
@pytest.mark.parametrize("table", PAIRS)
def test_pairs_of_keys_are_links_in_every_language(table, key, tmp_path):
    pairs = np.random.default_rng(3).integers(1, 121, (200, 2)).tolist()
    tables = entities_and_pairs(table, [map(key, pair) for pair in pairs], key=key)
    assert links_of(tmp_path / "d", tables) == [(column, table.capitalize()) for column in PAIRS[table]]


def test_texts_that_are_keys_of_the_same_table_refer_to_its_rows(tmp_path, out):
    tables = entities_and_pairs("kunde", [], key="K{:03}".format)
    del tables["link"]
    for k, row in enumerate(tables["kunde"]):
        row |= {"werber": f"K{k // 2 + 1:03}" if k % 3 else "", "code": row["id"], "art": ("K001", "K002")[k % 2]}
    schema = propose(write_tables(tmp_path / "d", **tables), out).draft.analysis.schema
    assert [(r.name, [a.type_name for a in r.arguments]) for r in schema.relations] == [
        ("KundeWerber", ["Kunde", "Kunde"])
    ]


def numbers_of(kind, size, seed):
    """Return typical numbers of `size` rows; fewer than 1 % of the amounts exceed 80."""
    rng = np.random.default_rng(seed)
    return {
        "ages": rng.integers(18, 81, size), "counts": rng.poisson(6, size) + 1, "ratings": rng.integers(1, 6, size),
        "amounts": rng.geometric(0.06, size), "hours": rng.integers(1, 25, size), "keys": rng.integers(1, 81, size),
        "fives": 5 * rng.integers(1, 17, size),
    }[kind].tolist()  # fmt: skip


@pytest.mark.parametrize(
    ("kinds", "n"),
    [
        (("ages", "counts"), 100), (("ages", "ages"), 80), (("keys", "ages"), 80), (("amounts", "amounts"), 80),
        (("keys", "amounts"), 80), (("hours", "counts"), 80), (("keys", "ratings"), 80), (("fives", "fives"), 80),
    ],
)  # fmt: skip
def test_pairs_of_numeric_attributes_are_not_links(kinds, n, tmp_path):
    pairs = zip(*(numbers_of(kind, 1000, seed) for seed, kind in enumerate(kinds, start=7)), strict=True)
    assert links_of(tmp_path / "d", entities_and_pairs("kunde", pairs, n=n)) == []


@pytest.mark.parametrize("n", [100, 80])
def test_pairs_of_keys_of_as_many_entities_are_links(n, tmp_path):
    keys = np.random.default_rng(6).integers(1, n + 1, (1000, 2)).tolist()
    assert len(links_of(tmp_path / "keys", entities_and_pairs("kunde", keys, n=n))) == 2


def test_pairs_of_numbers_that_are_ambiguous_are_not_links(tmp_path):
    pairs = np.random.default_rng(3).integers(1, 119, (300, 2)).tolist()
    tables = entities_and_pairs("kunde", pairs)
    assert links_of(tmp_path / "a", tables) != []
    other = [{"id": k, "art": "xy"[k % 2]} for k in range(1, 119)]
    assert links_of(tmp_path / "b", tables | {"ware": other}) == []  # both tables have these keys
    assert (
        links_of(
            tmp_path / "c", tables | {"link": [{**row, "menge": 1 + k % 12} for k, row in enumerate(tables["link"])]}
        )
        == []
    )
    assert links_of(tmp_path / "d", tables | {"link": [{"nr": k, **row} for k, row in enumerate(tables["link"])]}) == []
    small = entities_and_pairs("kunde", [(k % 12 + 1, k * 5 % 12 + 1) for k in range(40)], n=12)
    assert links_of(tmp_path / "e", small) == []


def test_pairs_of_numbers_may_have_attributes_and_few_unknown_keys(tmp_path):
    pairs = np.random.default_rng(3).integers(1, 121, (300, 2)).tolist()
    tables = entities_and_pairs("kunde", [*pairs, (5, 999)])
    tables["link"] = [{**row, "grad": 1 + k % 5} for k, row in enumerate(tables["link"])]
    project = propose(write_tables(tmp_path / "d", **tables), tmp_path / "d.rcrf")
    assert references(project.draft.analysis.schema)[:2] == [("von", "Kunde"), ("an", "Kunde")]
    assert 'orphans = "drop"  # 1 of 301 rows' in (tmp_path / "d.toml").read_text()


def test_numbers_with_one_text_do_not_refer_to_numeric_keys_by_chance(tmp_path):
    shop = [{"id": k, "kind": "ab"[k % 2]} for k in range(100)]
    sale = [{"shop": k % 100, "amount": "?" if k == 5 else k % 40, "good": "yn"[k % 2]} for k in range(200)]
    _, manifest = analyse(write_tables(tmp_path / "d", shop=shop, sale=sale))
    assert "orphans" not in manifest.to_toml("m.rcrf")


def test_evidence_of_a_later_prediction_may_have_new_values(tmp_path, out):
    """Only the target has a closed domain; weights of values that training did not see are zero, and are counted."""
    customers = [{"id": k, "country": ("DE", "FR", "IT")[k % 3], "churn": ("no", "yes")[k % 3 == 0]} for k in range(60)]
    write_tables(tmp_path / "d", customer=customers)
    propose(tmp_path / "d", out, "customer.churn")
    assert "domain Country = open" in out.read_text() and "domain Churn = { no, yes }" in out.read_text()
    learned = relcrf.load(out).fit(relcrf.Dataset(tmp_path / "d"), backend="local")
    write_tables(
        tmp_path / "new", customer=[{"id": 1, "country": "DE", "churn": ""}, {"id": 2, "country": "XX", "churn": ""}]
    )
    prediction = learned.predict(relcrf.Dataset(tmp_path / "new"))
    assert prediction.unseen_keys == {"country": 1}
    (known, unseen) = prediction.table("Customer.churn").rows(2)
    assert known[1] == "yes" and unseen[1] == "no"


def test_numbers_are_standardised(tmp_path, out, relcrf_):
    """A missing number has the effect of the mean, whatever the unit and the zero of the numbers."""
    rng = np.random.default_rng(0)
    item = [
        {
            "id": f"i{k}",
            "mass": round(float(rng.lognormal(9, 1)), 1),
            "year": "" if k % 5 == 0 else 1980 + k,
            "change": round(float(rng.normal(-3, 0.1)), 3),
            "constant": 0.1,
            "single": 7.5 if k == 3 else "",
            "opened": "" if k == 4 else f"{k % 24:02}:15",
            "since": "" if k == 4 else f"2024-01-{k % 28 + 1:02}",
            "label": "ab"[k % 2],
        }
        for k in range(40)
    ]
    folder = write_tables(tmp_path / "d", item=item)
    project = propose(folder, out, "item.label")
    text = " ".join(out.read_text().split())
    for feature in ("log1p(i.mass)", "i.change", "log1p(i.year)", 'i.since - "2000-01-01"', 'i.opened - "00:00"'):
        assert f"by standardise({feature})" in text
    assert "i.constant" not in text and "i.single" not in text
    grounding = project.draft.grounding
    columns = {name.rstrip("_"): g.features.values for name, g in zip(grounding.group_names, grounding.graph.groups, strict=True)
               if isinstance(g.features, Dense)}  # fmt: skip
    assert columns.keys() == {"mass", "year", "change", "since", "opened"}
    for name, values in columns.items():
        present = np.array([row[name] != "" for row in sorted(item, key=lambda row: row["id"])])
        assert (values[~present] == 0).all() and values[present].mean() == pytest.approx(0, abs=1e-6)
        assert values[present].std() == pytest.approx(1, abs=1e-6)
    assert relcrf_("train", out, "--data", folder, "--backend", "local", "--out", tmp_path / "run")[0] == 0
    code, printed, _ = relcrf_("explain", tmp_path / "run", "Item/i4", "--data", folder)
    assert code == 0 and "standardise(log1p(i.mass))" in printed and "standardise(i.change)" in printed
    code, printed, _ = relcrf_("weights", tmp_path / "run", "--data", folder)
    assert code == 0 and "standardise(log1p(i.mass))" in printed


def test_columns_of_times_keep_the_time_of_day(tmp_path, out):
    """Dates are proposed as `datetime`, which can be subtracted; a timestamp as `date` would be an error."""
    rows = [
        {
            "id": k,
            "label": "ab"[k % 2],
            "born": f"2024-01-{k + 1:02}",
            "sent": f"2024-01-02T{k:02}:30:00Z",
            "opens": f"{k:02}:15",
        }
        for k in range(20)
    ]
    write_tables(tmp_path / "d", page=rows)
    propose(tmp_path / "d", out, "page.label")
    text = " ".join(out.read_text().split())
    assert all(each in text for each in ("born : datetime #", "sent : datetime #", "opens : time #"))
    for name, start in (("born", "2000-01-01"), ("sent", "2000-01-01"), ("opens", "00:00")):
        assert f'by standardise(p.{name} - "{start}")' in text
    assert bind(relcrf.load(out).spec, relcrf.Dataset(tmp_path / "d")).sizes == {"Page": 20}


def test_manifest_of_a_database_names_its_tables(tmp_path, relcrf_, relcrf_json, monkeypatch):
    monkeypatch.setattr(trial, "MAX_VARIABLES", 0)
    path = tmp_path / "d.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE page (id INTEGER, label TEXT, 'odd name' TEXT, site INTEGER)")
        rows = [(k, "ab"[k % 2] if k % 5 else None, "cd"[k % 2], k % 10) for k in range(60)]
        connection.executemany("INSERT INTO page VALUES (?, ?, ?, ?)", rows)
        connection.execute("CREATE TABLE site (id INTEGER, country TEXT)")
        connection.executemany("INSERT INTO site VALUES (?, ?)", [(k, "xy"[k % 2]) for k in range(10)])
    connection.close()
    model = tmp_path / "m.rcrf"
    code, found = relcrf_json("new", path, "--out", model, "--predict", "page.label")
    assert code == 0 and found["manifest"] == str(tmp_path / "m.toml")
    text = (tmp_path / "m.toml").read_text()
    assert 'table = "page"\ncolumns = { odd_name = "odd name" }' in text and "file" not in text
    assert "relation PageSite" in model.read_text() and "odd_name" in model.read_text()
    train = ("train", model, "--data", path, "--manifest", tmp_path / "m.toml", "--backend", "local")
    assert relcrf_(*train, "--out", tmp_path / "run")[0] == 0
    code, _, err = relcrf_("predict", tmp_path / "run", "--data", path, "--out", tmp_path / "p.csv")
    assert code == 0 and "are read as" in err and len((tmp_path / "p.csv").read_text().splitlines()) == 13
    (tmp_path / "m.toml").write_text(text.replace('table = "site"', 'table = "sites"'))
    code, _, err = relcrf_(*train, "--out", tmp_path / "other")
    assert code == 3 and "table 'sites' is missing" in err and "did you mean 'site'" in err


@pytest.mark.slow
def test_existing_files_and_missing_targets_raise_errors(tmp_path, out):
    folder = small_web(tmp_path / "web")
    propose(folder, out)
    before = out.read_bytes()
    with pytest.raises(UsageError, match="E374"):
        propose(folder, out, "Link")
    assert out.read_bytes() == before
    propose(folder, out, "Link", force=True)
    assert out.read_bytes() != before
    with pytest.raises(UsageError, match="E374"):
        propose(folder, tmp_path / "model.txt")
    # Coordinates that are integers by chance are not references.
    numbers = write_tables(tmp_path / "n", reading=[{"id": k, "x": k / 7, "y": k // 2} for k in range(40)])
    with pytest.raises(UsageError, match="E369"):
        propose(numbers, tmp_path / "n.rcrf")
    assert not (tmp_path / "n.rcrf").exists()


@pytest.mark.slow
def test_command_writes_proposal(relcrf_, relcrf_json, tmp_path, monkeypatch):
    monkeypatch.setattr(trial, "FORMS", {"linear": "weights"})  # classifiers would take a minute
    monkeypatch.setattr(trial, "MAX_SECONDS", 1e6)
    monkeypatch.setattr(trial, "COMPARED_FOLDS", "folds=2")
    folder = small_web(tmp_path / "web")
    code, found = relcrf_json("new", folder, "--out", tmp_path / "a.rcrf")
    assert code == 0 and found["predict"] == "Page.category" and found["manifest"] is None
    assert [t["name"] for t in found["templates"]][:2] == ["prior", "word"]
    monkeypatch.setattr(trial, "MAX_VARIABLES", 0)
    code, text, _ = relcrf_("new", folder, "--out", tmp_path / "b.rcrf")
    assert code == 0 and "bag Page.words" in text and "relcrf train" in text
    for command in found["commands"][:2]:
        code, _, err = relcrf_(*shlex.split(command)[1:])
        assert code == 0, err
    code, _, err = relcrf_("new", folder, "--out", tmp_path / "a.rcrf")
    assert code == 2 and err.count("error[E374]") == 1
    scores = found["trial"]
    assert set(scores) == {"majority", "local", "auto"} and {score["n"] for score in scores.values()} in ({12}, {48}), (
        scores
    )
    assert found["aggregates"]["folds"] == 2 and [each["form"] for each in found["aggregates"]["forms"]] == [
        "none",
        "linear",
    ]
    assert scores["auto"]["accuracy"] >= scores["majority"]["accuracy"]


def test_terminal_is_asked_before_files_are_written(tmp_path, monkeypatch):
    monkeypatch.setattr(trial, "MAX_VARIABLES", 0)
    folder = small_web(tmp_path / "web")
    monkeypatch.setattr("relcrf.cli.new.sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
    arguments = ["new", str(folder), "--out", str(tmp_path / "m.rcrf")]
    result = CliRunner().invoke(app, arguments, input="n\n")
    assert result.exit_code == 0 and "Nothing was written" in result.output and not (tmp_path / "m.rcrf").exists()
    result = CliRunner().invoke(app, arguments, input="y\n")
    assert result.exit_code == 0 and (tmp_path / "m.rcrf").exists()
    result = CliRunner().invoke(app, [*arguments, "--yes", "--force"])
    assert result.exit_code == 0 and "Write" not in result.output


def test_profiles_outlive_the_dataset(tmp_path):
    """Queries on profiled tables need the temporary files of the dataset."""
    write_tables(tmp_path, e=[{"id": f"e{k}", "y": "ab"[k % 2]} for k in range(10)])
    analysis, _ = analyse_source(str(tmp_path), None, DEFAULT_MEMORY)
    gc.collect()
    (table,) = analysis.tables
    assert table.dataset.store.new_folder().exists() and table.count_distinct(["y"]) == 2


def test_kinds_of_columns_do_not_depend_on_the_sampled_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(profile, "MAX_SAMPLE_ROWS", 2)
    monkeypatch.setattr(profile, "COLUMNS_PER_QUERY", 2)
    columns = {
        "whole": ["1", "20", "-3"], "real": ["1", "2", "2.5"], "date": ["2024-01-31", "2024-02-01", ""],
        "time": ["1:30", "10:30:00", "11:00"], "datetime": ["2024-01-31", "2024-02-01", "2024-02-01 10:00"],
        "text": ["1", "2", "x"], "late": ["", "", "7"], "empty": ["", "", ""], "nan": ["1", "2", "inf"],
    }  # fmt: skip
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    (table,) = profile.profile_tables(Dataset(write_tables(tmp_path, t=rows)))
    kinds = {name: column.kind for name, column in table.columns.items()}
    assert kinds == {name: name for name in columns} | {"late": "whole", "empty": "text", "nan": "text"}
    whole, text = table.columns["whole"], table.columns["text"]
    assert (whole.low, whole.high, whole.values) == (-3.0, 20.0, ("-3", "1", "20"))
    assert (text.first, text.last, text.low, text.distinct) == ("1", "x", None, 3)
    assert text.is_disjoint(table.columns["date"]) is False and table.columns["late"].is_disjoint(table.columns["real"])


def test_large_models_are_not_tried(tmp_path, monkeypatch):
    monkeypatch.setattr(trial, "MAX_VARIABLES", 59)
    made = proposal.propose(
        str(small_web(tmp_path / "web")), tmp_path / "m.rcrf", None, DEFAULT_MEMORY, with_trial=True
    )
    assert made.trial is not None and made.trial.reason == "it has more than 59 variables" and not made.trial.scores


def test_prior_of_a_large_table_is_kept(tmp_path, out, monkeypatch):
    """A template with one binding per variable is not too large, however many variables there are."""
    monkeypatch.setattr(draft, "MAX_BINDINGS", 30)
    rows = [{"id": k, "kind": "pqr"[k % 3], "label": "xy"[k % 2]} for k in range(60)]
    pairs = [{"source": k % 60, "target": (7 * k + k // 60 + 1) % 60} for k in range(180)]
    project = propose(write_tables(tmp_path / "d", page=rows, link=pairs), out, "page.label")
    assert names(project) == ["prior", "kind"]
    assert "# To try: the labels at both ends of a Link tuple depend on each other" in out.read_text()
