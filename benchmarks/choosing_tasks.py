"""The tasks of benchmarks/choosing.py: tables, model and split of each dataset."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pandas as pd
from support import ROOT

import relcrf

sys.path.insert(0, str(ROOT / "datasets"))
import faces
import real

PEOPLE = """
domain Role = open
domain Course = open
domain Project = open
entity Person { predict role: Role }
relation Teaches(course: Course, person: Person)
relation Assists(course: Course, person: Person)
relation Member(person: Person, project: Project)
template prior(p: Person) over p.role
template teaches(p: Person) where Teaches(c, p) over p.role
template assists(p: Person) where Assists(c, p) over p.role
template projects(p: Person) over p.role by log1p(count { x where Member(p, x) })
template colleagues(p: Person, q: Person) where Member(p, x) and Member(q, x) and p < q over symmetric p.role, q.role
"""
ADVISERS = """
domain Area = open
domain Phase = open
domain Position = open
domain Title = open
domain Course = open
entity Student { area: Area, phase: Phase }
entity Professor { area: Area, position: Position }
relation Wrote(person: Student, title: Title)
relation Published(person: Professor, title: Title)
relation Assists(person: Student, course: Course)
relation Teaches(person: Professor, course: Course)
predict relation advises(student: Student, professor: Professor) where student.area == professor.area
template prior(s: Student, p: Professor) over advises(s, p)
template phase(s: Student, p: Professor) over advises(s, p) per s.phase
template position(s: Student, p: Professor) over advises(s, p) per p.position
template papers(s: Student, p: Professor)
    where Wrote(s, t) and Published(p, t)
    over  advises(s, p)
    by    1, log1p(count { x where Wrote(s, x) and Published(p, x) })
template courses(s: Student, p: Professor) where Assists(s, c) and Teaches(p, c) over advises(s, p)
template rivals(s: Student, p: Professor, q: Professor) where p < q over advises(s, p) and advises(s, q)
"""
FILMS = """
domain Role = open
domain Movie = open
entity Person { predict role: Role, female: bool }
relation Cast(person: Person, movie: Movie)
template prior(p: Person) over p.role by 1, p.female, log1p(count { m where Cast(p, m) })
template together(p: Person, q: Person) where Cast(p, m) and Cast(q, m) and p < q over symmetric p.role, q.role
"""
LETTERS = """
domain Letter_name = open
entity Letter { predict label: Letter_name, pixels: vector }
relation Next(letter: Letter, following: Letter)
template pixels(a: Letter) over a.label by 1, a.pixels
template step(a: Letter, b: Letter) where Next(a, b) over a.label, b.label
"""
SCENES = """
domain Label = open
entity Image { features: vector }
predict relation shows(image: Image, label: Label)
template own(i: Image, l: Label) over shows(i, l) per l by 1, standardise(i.features)
template pair(i: Image, l: Label, m: Label) where l < m over shows(i, l), shows(i, m) per l, m
"""
CROPS = """
entity Image { predict is_face: bool, pixels: vector }
derive Near(a: Image, b: Image) = nearest 5 by distance(a.pixels, b.pixels)
template own(a: Image) over a.is_face by 1, standardise(a.pixels)
template alike(a: Image, b: Image) where Near(a, b) over a.is_face == b.is_face by 1, distance(a.pixels, b.pixels)
"""
MOLECULES = """
domain Part = open
entity Molecule { predict mutagenic: bool, parts: bag of Part }
template prior(m: Molecule) over m.mutagenic
template parts(m: Molecule) over m.mutagenic by normalise(m.parts)
"""
"""Small models of the datasets without a model in the folder `models`."""

Tables = dict[str, pd.DataFrame]


@dataclass(frozen=True)
class Task:
    """A comparison on one dataset.

    Args:
        title: The dataset, its size, and the labels that are held out.
        model: File in the folder `models`, or the text of a model.
        tables: Function that returns the tables.
        asked: Attribute or relation whose labels are scored.
        split: Split of the labels; see `relcrf.data.split_plan`.
        holdout: Names of the folds to hold out, each in turn; if empty, all folds.
        seeds: Arguments of `tables`, each for further folds; if empty, `tables` has no argument.
        settings: Settings of backends that differ from the defaults.
    """

    title: str
    model: str
    tables: Callable[..., Tables]
    asked: str
    split: str
    holdout: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def load_model(self) -> relcrf.Model:
        """Return the model."""
        is_file = self.model.endswith(".rcrf")
        return relcrf.load(ROOT / "models" / self.model) if is_file else relcrf.parse(self.model)


TASKS = {
    "webkb": Task("WebKB, a university", "webkb.rcrf", real.webkb, "Page.category", "by=Page.university"),
    "departments": Task("WebKB, a university", "departments.rcrf", real.webkb, "Page.category", "by=Page.university"),
    "cora": Task("Cora, a fifth", "cora_words.rcrf", real.cora, "Paper.topic", "random,folds=5", ("1", "2", "3")),
    "cora_near": Task("Cora, a fifth", "cora.rcrf", real.cora, "Paper.topic", "random,folds=5", ("1", "2", "3")),
    "nations": Task(
        "Nations, a tenth of the cells",
        "nations.rcrf",
        real.nations,
        "verb",
        "hide=0.1,repeats=3",
        settings={"trmrf": {"l1": 6.0}, "grafting": {"l1": 6.0}},
    ),
    "animals": Task("Animals, a tenth of the cells", "animals.rcrf", real.animals, "has", "hide=0.1,repeats=3"),
    "citations": Task(
        "400 citations of Cora, a fold",
        "entities.rcrf",
        partial(real.citations, 400),
        "same",
        "fold",
        settings={"dense": {"objective": "piecewise"}},
    ),
    "chunks": Task(
        "CoNLL-2000, 500 sentences, a fifth",
        "chain.rcrf",
        real.chunks,
        "Token.tag",
        "folds=5,by=Token.sentence",
        ("1", "2", "3"),
    ),
    "jester": Task(
        "Jester, 300 people, a tenth of the ratings",
        "jester.rcrf",
        partial(real.jester, 300),
        "likes",
        "hide=0.1,repeats=2",
    ),
    "recipes": Task(
        "What's Cooking, 1,000 recipes with 50 ingredients, a fifth of the cuisines",
        "recipes.rcrf",
        partial(real.recipes, 1000, 50),
        "Recipe.cuisine",
        "hide=0.2,of=Recipe.cuisine,repeats=3",
    ),
    "cooking": Task(
        "What's Cooking, 1,000 recipes with 50 ingredients, a tenth of the cells",
        "cooking.rcrf",
        partial(real.cooking, 1000, 50),
        "uses",
        "hide=0.1,repeats=2",
    ),
    "sensors": Task(
        "Intel laboratory, 60 half-hours of 50 thermometers, a fifth of the readings",
        "sensors.rcrf",
        partial(real.sensors, 60),
        "reading",
        "hide=0.2,repeats=2",
    ),
    "digits": Task(
        "Digits, 1,697 of 1,797 images", "digits.rcrf", faces.digits, "Image.digit", "part", ("rest",), (0, 1, 2)
    ),
    "olivetti": Task(
        "Olivetti, 280 of 400 faces", "faces.rcrf", faces.olivetti, "Image.person", "part", ("rest",), (0, 1, 2)
    ),
    "traffic": Task(
        "METR-LA, 60 hours of 50 traffic sensors, a fifth of the readings",
        "sensors.rcrf",
        partial(real.traffic, 60, 50),
        "reading",
        "hide=0.2,repeats=2",
    ),
    "people": Task("WebKB people, a university", PEOPLE, real.webkb_people, "Person.role", "by=Person.university"),
    "advisers": Task("UW-CSE, an area", ADVISERS, real.advisers, "advises", "by=Student.area"),
    "films": Task("IMDB, a fold", FILMS, real.film_people, "Person.role", "by=Person.part"),
    "letters": Task(
        "Letters, 1,000 words, a fifth of the published folds",
        LETTERS,
        partial(real.letters, 1000),
        "Letter.label",
        "folds=5,by=Letter.fold",
        ("1", "2", "3"),
    ),
    "scenes": Task("Scene, 600 images, a third", SCENES, partial(real.scenes, 600), "shows", "by=Image.part"),
    "crops": Task("LFW subset, 200 crops, a third", CROPS, real.face_crops, "Image.is_face", "random,folds=3"),
    "molecules": Task("Mutagenesis, a third", MOLECULES, real.molecules, "Molecule.mutagenic", "random,folds=3"),
}
"""The tasks by name."""
