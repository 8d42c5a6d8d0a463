"""Real data sets for the shipped models, read from the folder that the environment variable `RELCRF_DATA` names.

Each function returns data frames by table name, for `relcrf.Dataset`. The README of that folder lists the sources.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd


def data_folder(name: str) -> Path:
    """Return the folder of a data set.

    Raises:
        FileNotFoundError: `RELCRF_DATA` is not set, or does not contain the data set.
    """
    root = os.environ.get("RELCRF_DATA")
    if not root:
        raise FileNotFoundError("set RELCRF_DATA to the folder of real data sets")
    path = Path(root) / name
    if not path.is_dir():
        raise FileNotFoundError(f"{path} is not a folder")
    return path


def read_table(name: str, file: str) -> pd.DataFrame:
    """Read a table; only empty cells are missing, so texts such as 'NA' stay texts."""
    return pd.read_csv(data_folder(name) / file, keep_default_na=False, na_values=[""])


def cora() -> dict[str, pd.DataFrame]:
    """Return 2,708 papers for models/cora.rcrf."""
    paper = read_table("cora", "paper.csv")[["id", "category"]].rename(columns={"category": "topic"})
    cites = read_table("cora", "cites.csv").rename(columns={"src": "source", "dst": "target"})
    return {"paper": paper, "cites": cites, "paper_word": read_table("cora", "paper_word.csv")}


def webkb() -> dict[str, pd.DataFrame]:
    """Return 877 pages of four universities for models/webkb.rcrf; the folds are in the column `university`."""
    link = read_table("webkb", "link.csv").rename(columns={"src": "source", "dst": "target"})
    page = read_table("webkb", "page.csv")[["id", "category", "university"]]
    return {"page": page, "link": link, "page_word": read_table("webkb", "page_word.csv")}


def nations() -> dict[str, pd.DataFrame]:
    """Return 14 nations for models/nations.rcrf. A tuple that is missing in the survey is a query: it has no value."""
    name = read_table("nations", "nation.csv").set_index("id")["name"]
    traits = read_table("nations", "attribute.csv").set_index("id")["name"]
    verbs = read_table("nations", "relation.csv").set_index("id")["name"]
    has, applies = read_table("nations", "has.csv"), read_table("nations", "applies.csv")
    all_pairs = pd.MultiIndex.from_product([name.index, traits.index], names=["nation", "attribute"])
    trait = has.set_index(["nation", "attribute"])["value"].reindex(all_pairs).astype("boolean").reset_index()
    pairs = pd.MultiIndex.from_product([name.index, name.index, verbs.index], names=["src", "dst", "relation"])
    verb = applies.set_index(["src", "dst", "relation"])["value"].reindex(pairs).astype("boolean").reset_index()
    verb = verb[verb["src"] != verb["dst"]]
    return {
        "nation": pd.DataFrame({"id": name.to_numpy()}),
        "trait": pd.DataFrame(
            {"n": trait["nation"].map(name), "t": trait["attribute"].map(traits), "value": trait["value"]}
        ),
        "verb": pd.DataFrame(
            {
                "n": verb["src"].map(name),
                "m": verb["dst"].map(name),
                "v": verb["relation"].map(verbs),
                "value": verb["value"],
            }
        ),
    }


def animals() -> dict[str, pd.DataFrame]:
    """Return 50 animals and 85 attributes for models/animals.rcrf."""
    name = read_table("animals", "animal.csv").set_index("id")["name"]
    attributes = read_table("animals", "attribute.csv").set_index("id")["name"]
    has = read_table("animals", "has.csv")
    return {
        "animal": pd.DataFrame({"id": name.to_numpy()}),
        "has": pd.DataFrame({"animal": has["animal"].map(name), "attribute": has["attribute"].map(attributes)}),
    }


def sensors(rows: int = 200) -> dict[str, pd.DataFrame]:
    """Return the temperatures of the Intel laboratory for models/sensors.rcrf, binned to quintiles of each sensor."""
    return _binned(read_table("intel_lab", "temperature_30min.csv").head(rows).drop(columns=["split", "t"]))


def traffic(rows: int = 168, max_sensors: int = 207) -> dict[str, pd.DataFrame]:
    """Return the speeds at traffic sensors, once per hour, for models/sensors.rcrf, binned to quintiles of each sensor."""
    hourly = read_table("metr_la_week", "speed.csv.gz").iloc[::12].head(rows).reset_index(drop=True)
    return _binned(hourly.drop(columns="t").iloc[:, :max_sensors])


def _binned(wide: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the tables of models/sensors.rcrf for a table with one column per sensor."""
    levels = wide.apply(lambda c: pd.qcut(c.rank(method="first"), 5, labels=[1, 2, 3, 4, 5]).astype(int))
    levels["m"] = [f"t{k}" for k in range(len(levels))]
    reading = levels.melt(id_vars="m", var_name="s", value_name="value")
    return {"moment": pd.DataFrame({"id": levels["m"]}), "reading": reading}


def recipes(rows: int = 2000, max_ingredients: int = 153) -> dict[str, pd.DataFrame]:
    """Return recipes and their most frequent ingredients for models/recipes.rcrf."""
    recipe = read_table("whats_cooking", "recipe.csv").head(rows)
    ingredient = read_table("whats_cooking", "ingredient.csv").set_index("id")["name"]
    used = read_table("whats_cooking", "recipe_ingredient.csv.gz")
    frequent = used["ingredient"].value_counts().index[:max_ingredients]
    used = used[used["recipe"].isin(recipe["id"]) & used["ingredient"].isin(frequent)]
    uses = pd.DataFrame({"r": used["recipe"], "i": used["ingredient"].map(ingredient)}).drop_duplicates()
    return {"recipe": recipe, "uses": uses}


def cooking(rows: int = 39_774, max_ingredients: int = 153) -> dict[str, pd.DataFrame]:
    """Return recipes and their most frequent ingredients, without cuisines, for models/cooking.rcrf."""
    found = recipes(rows, max_ingredients)
    return {"recipe": found["recipe"][["id"]], "uses": found["uses"]}


def jester(rows: int | None = 7_200, *, complete: bool = True) -> dict[str, pd.DataFrame]:
    """Return people and their ratings of jokes (-10 to 10, in five equally wide levels) for models/jester.rcrf.

    Args:
        rows: Maximum number of people; None returns all.
        complete: Whether to return only people who rated all 100 jokes.
    """
    wide = read_table("jester", "rating_wide.csv.gz")
    wide = (wide[wide["n_rated"] == 100] if complete else wide).head(len(wide) if rows is None else rows)
    jokes = {f"j{k}": f"joke {k:03}" for k in range(1, 101)}
    ratings = wide[list(jokes)].to_numpy()
    levels = np.clip(np.ceil((ratings + 10.0) / 4.0), 1, 5)
    person, joke = np.nonzero(~np.isnan(ratings))
    people, names = np.array([f"p{k}" for k in wide["user"]]), np.array(list(jokes.values()))
    return {
        "person": pd.DataFrame({"id": people}),
        "likes": pd.DataFrame({"p": people[person], "j": names[joke], "value": levels[person, joke].astype(int)}),
    }


def chunks(sentences: int = 500) -> dict[str, pd.DataFrame]:
    """Return the first sentences of CoNLL-2000, numbered in the column `sentence`, for models/chain.rcrf."""
    words = read_table("conll2000", "train.csv.gz")
    words = words[words["sentence"] < sentences].reset_index(drop=True)
    token = pd.DataFrame(
        {
            "id": words.index,
            "tag": words["chunk"],
            "word": words["word"].str.lower(),
            "text": words["word"],
            "pos": words["pos"],
            "sentence": words["sentence"],
        }
    )
    inside = words["sentence"].eq(words["sentence"].shift(-1))
    here = words.index[inside]
    return {"token": token, "next": pd.DataFrame({"token": here, "following": here + 1})}


def citations(rows: int = 1295) -> dict[str, pd.DataFrame]:
    """Return citations of Cora for models/entities.rcrf; the published folds are in the column `fold`."""
    citation = read_table("cora_er", "citation.csv").head(rows)
    texts = {}
    for column in ("title", "author", "venue"):
        text = read_table("cora_er", f"{column}.csv").set_index("citation")[column]
        text = text.str.removeprefix(f"{column}_").str.replace("_", " ").str.strip()
        texts[column] = citation["citation"].map(text)
    record = pd.DataFrame({"id": citation["citation"], **texts, "fold": citation["fold"]})
    same = read_table("cora_er", "samebib.csv")
    known = set(record["id"])
    same = same[same["a"].isin(known) & same["b"].isin(known) & (same["a"] < same["b"])]
    return {"record": record, "same": same}


def webkb_people() -> dict[str, pd.DataFrame]:
    """Return 711 people of four universities (column `university`), their roles, courses and projects."""
    role = {name: read_table("webkb_mln", f"{name}.csv").assign(role=name) for name in ("faculty", "student")}
    person = pd.concat(role.values()).rename(columns={"person": "id", "fold": "university"})
    tables = {"person": person}
    for name, file in (("teaches", "courseprof"), ("assists", "courseta"), ("member", "project")):
        table = read_table("webkb_mln", f"{file}.csv").drop(columns="fold")
        tables[name] = table[table["person"].isin(person["id"])]
    return tables


def advisers() -> dict[str, pd.DataFrame]:
    """Return 216 students and 62 professors of UW-CSE, whose area is a fold; all other pairs are not advised."""
    tables = {
        name: read_table("uwcse", f"{name}.csv") for name in ("student", "professor", "publication", "ta", "taughtby")
    }
    student, professor = (
        tables[name].rename(columns={"person": "id", "fold": "area"}) for name in ("student", "professor")
    )
    for people, column, file in ((student, "phase", "inphase"), (professor, "position", "hasposition")):
        known = read_table("uwcse", f"{file}.csv").drop_duplicates("person").set_index("person")[column]
        people[column] = people["id"].map(known).fillna("unknown")
    wrote = tables["publication"][["person", "title"]].drop_duplicates()
    taught, assisted = (tables[name][["person", "course"]].drop_duplicates() for name in ("taughtby", "ta"))
    return {
        "student": student,
        "professor": professor,
        "wrote": wrote[wrote["person"].isin(student["id"])],
        "published": wrote[wrote["person"].isin(professor["id"])],
        "assists": assisted[assisted["person"].isin(student["id"])],
        "teaches": taught[taught["person"].isin(professor["id"])],
        "advises": read_table("uwcse", "advisedby.csv")[["student", "professor"]],
    }


def film_people() -> dict[str, pd.DataFrame]:
    """Return 268 actors and directors of IMDB, with folds in the column `part`, and the films of each."""
    role = {name: read_table("imdb", f"{name}.csv").assign(role=name) for name in ("actor", "director")}
    person = pd.concat(role.values()).rename(columns={"person": "id", "fold": "part"})
    person["female"] = person["id"].isin(read_table("imdb", "female_gender.csv")["person"])
    return {"person": person, "cast": read_table("imdb", "movie.csv")[["person", "movie"]]}


def letters(words: int = 6877) -> dict[str, pd.DataFrame]:
    """Return the letters of handwritten words as pixels, numbered from 0, with the published folds in the column `fold`."""
    letter = read_table("letters", "letter.csv.gz")
    letter = letter[letter["word"] < words]
    pixels = read_table("letters", "pixel_wide.csv.gz").drop(columns="letter").iloc[: len(letter)]
    follows = letter["id"][letter["word"].eq(letter["word"].shift(-1))]
    letter = letter.assign(pixels=list(pixels.to_numpy(dtype=float)))
    return {"letter": letter, "next": pd.DataFrame({"letter": follows, "following": follows + 1})}


def scenes(rows: int = 2407, parts: int = 3) -> dict[str, pd.DataFrame]:
    """Return photographs with 294 features, their labels `label0` to `label5`, and folds in the column `part`."""
    image = read_table("scene", "image.csv").head(rows).set_index("id")
    features = read_table("scene", "feature_wide.csv.gz").set_index("image").loc[image.index]
    has = image.filter(like="label").melt(var_name="label", ignore_index=False).reset_index()
    columns = {"id": image.index, "features": list(features.to_numpy()), "part": np.arange(len(image)) % parts}
    return {
        "image": pd.DataFrame(columns),
        "shows": has[has["value"] == 1][["id", "label"]].rename(columns={"id": "image"}),
    }


def face_crops() -> dict[str, pd.DataFrame]:
    """Return 200 crops of photographs, of which 100 are faces, as 625 pixels."""
    image = read_table("lfw_subset", "image.csv")
    pixels = read_table("lfw_subset", "pixel_wide.csv.gz").set_index("image").loc[image["id"]]
    return {"image": image.assign(is_face=image["is_face"] == 1, pixels=list(pixels.to_numpy()))}


def molecules() -> dict[str, pd.DataFrame]:
    """Return 188 molecules with the numbers of their atoms by element, and of their bonds by type and elements."""
    molecule = read_table("mutagenesis", "molecule.csv")
    atom, bond = read_table("mutagenesis", "atom.csv"), read_table("mutagenesis", "bond.csv")
    element = atom.set_index("atom")["element"]
    ends = np.sort(np.column_stack([bond["src"].map(element), bond["dst"].map(element)]), axis=1)
    kinds = pd.Series(ends[:, 0]) + "-" + ends[:, 1] + " " + bond["type"].astype(str)
    elements = atom[["molecule", "element"]].rename(columns={"element": "part"})
    parts = pd.concat([elements, bond[["molecule"]].assign(part=kinds)])
    counts = parts.groupby(["molecule", "part"]).size().rename("count").reset_index()
    molecule["mutagenic"] = molecule["mutagenic"] == 1
    return {"molecule": molecule, "molecule_parts": counts}
