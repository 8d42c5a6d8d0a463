"""Models written in Python are the same models, checked by the same checker."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import pytest

import relcrf
from relcrf.builder import ModelBuilder, bag, classifier, fn, latent, predict, propagate, time, vector
from relcrf.errors import ModelError, UsageError
from relcrf.resources import resource_path


def web() -> ModelBuilder:
    m = ModelBuilder()
    category = m.domain("Category", ["course", "faculty", "student", "project", "staff"])
    word = m.domain("Word")
    page = m.entity("Page", category=predict(category), words=bag(word))
    link = m.relation("Link", source=page, target=page)
    p, a, b, w = page("page"), page("a"), page("b"), word("w")
    m.template("prior", p).over(p.category)
    m.template("word", p, w).where(w.isin(p.words)).over(p.category).per(w)
    m.template("linked", a, b).where(link(a, b), a != b).over(a.category, b.category)
    return m


def test_a_shipped_model_in_python_is_the_shipped_model() -> None:
    assert web().build().spec == relcrf.load(resource_path("models", "webkb.rcrf")).spec


def everything() -> ModelBuilder:
    m = ModelBuilder()
    kind = m.domain("Kind", ["news", "home page"])
    level = m.domain("Level", range(1, 6))
    word = m.domain("Word")
    page = m.entity(
        "Page", "url", level=predict(level), spam=predict(bool), mood=latent(range(1, 4)), kind=kind, words=bag(word),
        length=float, count=int, seen=datetime.date, title=str, good=bool, v=vector,
    )  # fmt: skip
    link = m.relation("Link", source=page, target=page).with_attributes(strength=float)
    a, b, p, q = page.names("a b p q")
    w, x, y, z = word("w"), page("x"), page("y"), page("z")
    same = m.predict_relation("same", bool, link(a, b) & (a != b), a=page, b=page)
    topic = m.predict_relation("topic", level, p=page)
    m.derive("Near", a, b).nearest(5, fn.cosine(a.v, b.v))
    reach = m.derive("Reach", a, b)
    reach.where(link(a, b) | (reach.self_reference()(a, p) & link(p, b)))
    hub = m.derive("Hub", a).where(fn.count(q, where=link(q, a)) >= 10, ~fn.exists(link(a, a)))
    m.template("strong", a, b).where(link(a, b), link(a, b).strength > 0.5, a.kind != "home page").over(
        a.spam >> (b.level <= 2)
    ).per(a.kind).options(init=0.5, l2=1)
    m.template("recent", p).where(p.seen >= "2024-01-31", hub(p) | p.good).over(p.spam, p.level).by(
        1, p.v, -p.length * 2 - 1
    )
    m.template("even", a, b).where(link(a, b)).over(a.mood, b.mood, symmetric=True).options(weights="even2")
    m.template("odd", a, b).where(link(b, a)).over(a.mood, b.mood, symmetric=True).options(weights="even2")
    m.candidates("pairs", a, b, w).where(w.isin(a.words), link(a, b)).over(same(a, b).iff(b.spam)).per(w)
    m.template("sums", p).over(topic(p) == p.level).by(
        1 - p.length, 2 / (p.count + 1), abs(p.length), fn.sum(q.length, where=link(q, p)), fn.log1p(p.count)
    )
    m.rule((same(x, y) & same(y, z)) >> same(x, z), hard=True, name="transitive")
    m.rule((link(x, y) & x.spam) >> y.spam, 1.5)
    m.rule(~x.spam & same(x, x), per=[x], l2=0.5)
    smooth = m.feature("smooth", p, propagate(fn.tfidf(p.words), link, hops=2, normalised="symmetric"))
    around = m.feature("around", p, fn.mean(q.v, where=link(p, q)))
    m.template("smooth", p).over(p.spam).by(smooth(p))
    m.template("near", p).over(p.spam).by(around(p), fn.standardise(p.length))
    m.gate("strong", 1, a.length)
    return m


def test_all_of_the_language() -> None:
    model = everything().build()
    assert relcrf.parse(str(model)).spec == model.spec
    assert len(model.spec.declarations) == 24
    assert [t.name for t in model.spec.templates] == [
        "strong",
        "recent",
        "even",
        "odd",
        "pairs",
        "sums",
        "smooth",
        "near",
    ]


def test_predicted_numbers() -> None:
    m = ModelBuilder()
    house = m.entity("House", price=predict(float), size=float, kind=str)
    near = m.relation("Near", a=house, b=house)
    a, b = house.names("a b")
    m.template("size", a).over(a.price).by(1, a.size).per(a.kind)
    m.template("near", a, b).where(near(a, b)).over(a.price, b.price)
    model = m.build()
    assert "predict price : real" in model.to_rcrf() and relcrf.parse(model.to_rcrf()).spec == model.spec
    m.template("high", a).over(a.price > 100)
    with pytest.raises(ModelError) as caught:
        m.build()
    assert [d.code for d in caught.value.diagnostics] == ["E160"]


def test_times() -> None:
    m = ModelBuilder()
    visit = m.entity("Visit", back=predict(bool), day=time(datetime.date), cost=float)
    of = m.relation("Of", a=visit, b=visit).with_attributes(at=time(datetime.date))
    p, q, x = visit.names("p q x")
    same = m.derive("Same", p, q).as_of(p).where(of(p, x), of(q, x))
    rate = m.feature("rate", p, fn.mean(q.cost, where=same(p, q)), as_of=p)
    labels = m.feature("labels", p, classifier(p.back, fn.sum(q.back, where=same(p, q)), using="linear"), as_of=p)
    m.template("back", p).over(p.back).by(rate(p), labels(p)).as_of(p)
    m.rule((of(p, q) & p.back) >> q.back, as_of=p)
    spec = m.build().spec
    assert (
        spec
        == relcrf.parse("""
        entity Visit { predict back : bool  time day : date  cost : real }
        relation Of(a: Visit, b: Visit) { time at : date }
        derive Same(p: Visit, q: Visit) where Of(p, x) and Of(q, x) as of p
        feature rate(p: Visit) = mean { q.cost where Same(p, q) } as of p
        feature labels(p: Visit) = classifier of p.back from sum { q.back where Same(p, q) } using linear as of p
        template back(p: Visit) over p.back by rate(p), labels(p) as of p
        rule: Of(p, q) and p.back => q.back as of p
    """).spec
    )


def test_mistakes_are_the_checkers_and_show_the_text() -> None:
    m = web()
    page = m.entity("Author", name=str)
    m.template("bad", page("p")).where(page("p").name > 3).over(page("p").name)
    with pytest.raises(ModelError) as caught:
        m.build()
    assert {d.code for d in caught.value.diagnostics} == {"E111", "E125"}
    assert "where p.name > 3" in str(caught.value)


def test_an_unknown_attribute_is_told_at_once() -> None:
    page = web().entity("Author", category=str)
    with pytest.raises(AttributeError, match="did you mean 'category'"):
        _ = page("a").categry
    with pytest.raises(UsageError, match="did you mean 'cosine'"):
        fn.cosin(1, 2)


@pytest.mark.parametrize(
    "slip",
    [
        lambda a, b: a.length > 1 and b.length > 2,
        lambda a, b: 1 < a.length < 3,
        lambda a, b: a.length == [1],
        lambda a, b: a.isin(b.length + 1),
        lambda a, b: not a.length,
    ],
)
def test_what_python_cannot_say_is_refused(slip) -> None:
    m = ModelBuilder()
    page = m.entity("Page", length=float)
    with pytest.raises(UsageError) as caught:
        slip(page("a"), page("b"))
    assert caught.value.diagnostics[0].code == "E346"


def test_options_and_types_are_checked() -> None:
    m = ModelBuilder()
    page = m.entity("Page", spam=predict(bool))
    with pytest.raises(UsageError, match="unknown option 'l3'"):
        m.template("t", page("p")).over(page("p").spam).options(l3=1)
    with pytest.raises(UsageError, match="not a type"):
        m.entity("Other", x=list)
    with pytest.raises(UsageError, match="a step other than 1"):
        m.domain("D", range(1, 9, 2))


def test_it_reads_well() -> None:
    m = web()
    assert repr(m) == str(m.build()) == relcrf.load(resource_path("models", "webkb.rcrf")).to_rcrf()
    html = m._repr_html_()
    assert "<pre" in html and "template" in html and "<script" not in html
    m.domain("Odd", ["<script>"])
    assert "<script>" not in m._repr_html_()
    assert repr(m.template("x", m.entity("New", good=predict(bool))("n"))) == "template x"


def test_a_cell_can_run_again() -> None:
    m = web()
    m.drop("linked")
    assert [t.name for t in m.build().spec.templates] == ["prior", "word"]


def test_it_runs() -> None:
    m = ModelBuilder()
    person = m.entity("Person")
    friends = m.relation("Friends", x=person, y=person)
    smokes = m.predict_relation("Smokes", x=person)
    x, y = person.names("x y")
    m.rule((friends(x, y) & smokes(x)) >> smokes(y), 2.0)
    model = m.build()
    data = relcrf.Dataset(
        {
            "person": pd.DataFrame({"id": ["anna", "bob", "carl"]}),
            "friends": pd.DataFrame({"x": ["anna"], "y": ["bob"]}),
            "smokes": pd.DataFrame({"x": ["anna", "bob"], "value": [True, None]}),
        }
    )
    found = model.fit(data, "ess").predict(data).table().rows()
    assert [row[:2] for row in found] == [("bob", "true")]


@pytest.mark.parametrize(
    "misuse",
    [
        lambda m, page, a: m.template("t", page),
        lambda m, page, a: m.relation("R", x=float),
        lambda m, page, a: bag("Word"),
        lambda m, page, a: "x" in a.length,
        lambda m, page, a: fn.exists(),
        lambda m, page, a: a.length < float("inf"),
        lambda m, page, a: m.rule(a.spam, float("nan")),
        lambda m, page, a: m.rule(a.spam, 2.0, hard=True),
        lambda m, page, a: m.template("t", a).over(a.spam).options(l2="much"),
        lambda m, page, a: m.template("t", a).over(a.spam).options(fixed="no"),
        lambda m, page, a: m.template("t", a).over(a.spam).init(),
        lambda m, page, a: m.template("t", a).over(a.spam).options(init=(0.5, None)),
        lambda m, page, a: (m.template("t", a), m.drop("t"))[0].over(a.spam),
        lambda m, page, a: m.domain("Word", "open"),
        lambda m, page, a: m.predict_relation("Same", a=page, b=page).with_attributes(score=float),
        lambda m, page, a: (m.relation("Link", a=page, b=page), m.drop("Link"))[0].with_attributes(score=float),
    ],
)
def test_misuse_is_a_diagnostic(misuse) -> None:
    m = ModelBuilder()
    page = m.entity("Page", spam=predict(bool), length=float)
    with pytest.raises(UsageError) as caught:
        misuse(m, page, page("a"))
    assert caught.value.diagnostics[0].code == "E346"


def test_relation_and_template_may_have_the_same_name() -> None:
    m = ModelBuilder()
    page = m.entity("Page", spam=predict(bool))
    a, b = page.names("a b")
    linked = m.template("Link", a, b)
    link = m.relation("Link", source=page, target=page).with_attributes(score=float)
    linked.where(link(a, b)).over(a.spam, b.spam).by(link(a, b).score)
    assert [each.name for each in m.build().spec.relations[0].attributes] == ["score"]


def test_datetimes_and_times() -> None:
    m = ModelBuilder()
    page = m.entity("Page", spam=predict(bool), seen=datetime.date, at=datetime.datetime, clock=datetime.time)
    a = page("a")
    midnight = datetime.datetime(2024, 1, 31)
    m.template("t", a).where(
        a.at > midnight.replace(hour=10), a.seen > midnight, a.at < midnight, a.clock < datetime.time(10, 30)
    ).over(a.spam)
    text = 'a.at > "2024-01-31T10:00:00" and a.seen > "2024-01-31" and a.at < "2024-01-31" and a.clock < "10:30:00"'
    assert text in " ".join(str(m.build()).split())
    m.template("u", a).where(a.seen > midnight.replace(hour=10)).over(a.spam)
    with pytest.raises(relcrf.ModelError, match="E112"):
        m.build()


def test_numpy_numbers_and_dates() -> None:
    m = ModelBuilder()
    page = m.entity("Page", spam=predict(bool), length=float, seen=datetime.date)
    a = page("a")
    m.template("t", a).where(
        a.length < np.float64(2.5), a.length > np.int64(-3), a.seen > datetime.date(2024, 1, 31)
    ).over(a.spam).l2(np.float64(1)).init(-2).weights("w").l1(0)
    m.template("u", a).over(a.spam).weights("w")
    m.template("v", a).over(a.spam).init(np.float64(0.5), -1)
    m.template("z", a).over(a.spam).options(init=[0.25])
    assert [t.options.init for t in m.build().spec.templates] == [-2.0, None, (0.5, -1.0), 0.25]
    assert 'a.length < 2.5 and a.length > -3 and a.seen > "2024-01-31"' in str(m.build())
