"""Image data sets for collective recognition, as tables: scikit-learn's digits and the Olivetti faces.

The task is FACES of Chechetka & Guestrin (2010): label images by a local classifier and by the similarity of images.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from real import read_table
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from relcrf.demo.digits import make_digits


@dataclass(frozen=True)
class Faces:
    """One split of a set of faces.

    Args:
        vectors: Feature vectors, whose distances define the similarity of images, shape (n, d).
        person: Labels from 0, shape (n,).
        labelled: Mask of the labelled images, shape (n,).
        opinion: Log-probabilities of the local classifier, shape (n, people). For labelled images they are out-of-fold
            predictions; otherwise the classifier would be overconfident on its training images.
    """

    vectors: np.ndarray
    person: np.ndarray
    labelled: np.ndarray
    opinion: np.ndarray

    def tables(self) -> dict[str, pd.DataFrame]:
        """Return tables for models/faces.rcrf: `image` (id, person, part: `labelled` or `rest`, pixels) and `opinion`."""
        n, people = self.opinion.shape
        part = np.where(self.labelled, "labelled", "rest")
        image = pd.DataFrame({"id": np.arange(n), "person": self.person, "part": part, "pixels": list(self.vectors)})
        row, who = np.divmod(np.arange(n * people), people)
        return {"image": image, "opinion": pd.DataFrame({"image": row, "who": who, "score": self.opinion.ravel()})}


def digits(seed: int) -> dict[str, pd.DataFrame]:
    """Return 1,797 images of digits for models/digits.rcrf. Ten images per digit are labelled, as in `relcrf demo`."""
    return {"image": pd.DataFrame(make_digits(seed).table())}


def olivetti(seed: int) -> dict[str, pd.DataFrame]:
    """Return the tables of `olivetti_faces`, for models/faces.rcrf."""
    return olivetti_faces(seed).tables()


def olivetti_faces(seed: int, labelled_each: int = 3, components: int = 50) -> Faces:
    """Return 400 faces of 40 people as principal components; `labelled_each` faces of each person are labelled.

    The local classifier is a logistic regression on the components.
    """
    person = read_table("olivetti", "face.csv")["person"].to_numpy()
    wide = read_table("olivetti", "pixel_wide.csv.gz").drop(columns="face").to_numpy() / 255.0
    vectors = PCA(components, random_state=0).fit_transform(wide)
    vectors /= np.sqrt(vectors.var(axis=0).sum())
    rng = np.random.default_rng(seed)
    labelled = np.zeros(len(person), dtype=bool)
    for p in np.unique(person):
        labelled[rng.permutation(np.flatnonzero(person == p))[:labelled_each]] = True
    classifier = LogisticRegression(max_iter=2000, C=100.0)
    folds = StratifiedKFold(labelled_each, shuffle=True, random_state=seed)
    opinion = np.empty((len(person), person.max() + 1))
    opinion[labelled] = cross_val_predict(
        classifier, vectors[labelled], person[labelled], cv=folds, method="predict_log_proba"
    )
    classifier.fit(vectors[labelled], person[labelled])
    opinion[~labelled] = classifier.predict_log_proba(vectors[~labelled])
    return Faces(vectors, person, labelled, opinion)
