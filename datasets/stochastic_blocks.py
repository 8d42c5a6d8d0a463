"""Generator of papers with topics, words and citations from a degree-corrected stochastic block model.

    python datasets/stochastic_blocks.py --papers 3000 --homophily 0.8 --label-rate 0.05 --out /tmp/blocks

Writes the tables of models/cora.rcrf: `paper.parquet` (id, topic), `paper_word.parquet` (paper, word) and `cites.parquet`
(source, target). Only the papers of a random sample, which has the same fraction of each topic, have a topic; `truth.parquet`
(id, topic) has the topics of all papers. The four axes of a comparison are the mean degree, the homophily, the label rate and
the word signal.

Source: Karrer & Newman (2011), Stochastic blockmodels and community structure in networks, for the citations; the numbers of
citations between topics are random, and two papers have at most one citation.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class BlockModel:
    """The parameters of a network of papers.

    Args:
        degree: Mean number of citations from or to a paper.
        homophily: Fraction of citations within a topic, from 0 to 1. At `1 / n_topics`, citations do not depend on topics.
            Above it, the other citations are to all other topics alike. Below it, citations prefer the next topic: topic k
            cites topic k + 1, and the last topic cites the first; at 0, all citations are of this kind.
        signal: Fraction of words from the distribution of the topic; the others are from the same background for all topics.
        label_rate: Fraction of the papers of each topic that are labelled.
        exponent: Exponent of the power law of the expected degrees, above 2; degrees are more equal for larger exponents.
        words_per_paper: Mean number of words drawn per paper; repeated words count once.
    """

    n_papers: int = 3000
    n_topics: int = 5
    degree: float = 4.0
    homophily: float = 0.8
    signal: float = 0.25
    label_rate: float = 0.05
    exponent: float = 3.0
    n_words: int = 1000
    words_per_paper: float = 20.0

    def topic_affinity(self) -> np.ndarray:
        """Return the probability of the topic of the target given the topic of the source, shape (n_topics, n_topics)."""
        n = self.n_topics
        if self.homophily >= 1.0 / n:
            other = (1.0 - self.homophily) / max(n - 1, 1)
            return np.full((n, n), other) + (self.homophily - other) * np.eye(n)
        weight = self.homophily * n
        return weight / n + (1.0 - weight) * np.roll(np.eye(n), 1, axis=1)


@dataclass(frozen=True)
class Papers:
    """Papers with topics, words and citations.

    Args:
        topic: Topic of each paper, from 0, shape (n_papers,).
        labelled: Mask of the papers with a label, shape (n_papers,).
        words: Paper and word of each distinct pair, shape (n, 2).
        cites: Source and target of each citation, shape (n_citations, 2).
    """

    topic: np.ndarray
    labelled: np.ndarray
    words: np.ndarray
    cites: np.ndarray

    def tables(self, *, with_all_labels: bool = True) -> dict[str, pd.DataFrame]:
        """Return the tables of models/cora.rcrf, by name.

        Args:
            with_all_labels: Whether all papers have a topic, not only the labelled papers.
        """
        width = len(str(self.topic.max(initial=0)))
        name = pd.Series([f"topic_{k:0{width}}" for k in self.topic], dtype=object)
        if not with_all_labels:
            name = name.where(self.labelled, None)
        return {
            "paper": pd.DataFrame({"id": np.arange(len(self.topic)), "topic": name}),
            "cites": pd.DataFrame(self.cites, columns=["source", "target"]),
            "paper_word": pd.DataFrame(self.words, columns=["paper", "word"]),
        }


def draw_indices(cumulative: np.ndarray, row: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw one column index for each given row of a table of cumulative probabilities, shape (n_rows, n_columns)."""
    n_columns = cumulative.shape[1]
    steps = (cumulative / cumulative[:, -1:] + np.arange(len(cumulative))[:, None]).ravel()
    found = np.searchsorted(steps, row + rng.random(len(row)), side="right") - row * n_columns
    return np.clip(found, 0, n_columns - 1)  # rounding may reach an adjacent row


def draw_citations(model: BlockModel, topic: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw `degree * n_papers / 2` citations, at most one between two papers, shape (n_citations, 2)."""
    n, most = model.n_papers, np.sqrt(model.n_papers)
    power = 1.0 - model.exponent
    weight = (1.0 - rng.random(n) * (1.0 - most**power)) ** (1.0 / power)  # from 1 to `most`
    members = np.argsort(topic, kind="stable")
    cumulative = np.cumsum(weight[members])
    stop = np.cumsum(np.bincount(topic, minlength=model.n_topics))
    bounds = np.concatenate(([0.0], cumulative[stop - 1]))
    affinity = np.cumsum(model.topic_affinity(), axis=1)
    n_links = round(model.degree * n / 2)
    if n_links > n * (n - 1) // 4:
        raise ValueError(f"mean degree {model.degree:g} is too large for {n} papers")
    found = np.empty((0, 2), dtype=np.int64)
    while len(found) < n_links:
        source = members[np.searchsorted(cumulative, rng.random(n_links) * cumulative[-1], side="right")]
        other = draw_indices(affinity, topic[source], rng)
        place = bounds[other] + rng.random(n_links) * (bounds[other + 1] - bounds[other])
        target = members[np.minimum(np.searchsorted(cumulative, place, side="right"), stop[other] - 1)]
        found = np.concatenate((found, np.column_stack((source, target))[source != target]))
        pairs = np.sort(found, axis=1)
        first = np.unique(pairs[:, 0] * n + pairs[:, 1], return_index=True)[1]
        found = found[np.sort(first)]
    return found[:n_links]


def draw_words(model: BlockModel, topic: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw the words of each paper; return the distinct pairs of paper and word, shape (n, 2).

    The background and each topic have Zipf frequencies, proportional to 1 / rank, with ranks in random order.
    """
    zipf = 1.0 / np.arange(1, model.n_words + 1)
    frequency = np.array([rng.permutation(zipf) for _ in range(model.n_topics + 1)])
    paper = np.repeat(np.arange(model.n_papers), 1 + rng.poisson(model.words_per_paper - 1, size=model.n_papers))
    row = np.where(rng.random(len(paper)) < model.signal, topic[paper], model.n_topics)
    word = draw_indices(np.cumsum(frequency, axis=1), row, rng)
    pairs = np.unique(paper * model.n_words + word)
    return np.column_stack(np.divmod(pairs, model.n_words))


def make_papers(model: BlockModel, rng: np.random.Generator) -> Papers:
    """Draw papers; the numbers of papers per topic differ by at most one."""
    topic = rng.permutation(np.arange(model.n_papers) % model.n_topics)
    order = rng.permutation(model.n_papers)
    labelled = np.zeros(model.n_papers, dtype=bool)
    for k in range(model.n_topics):
        members = order[topic[order] == k]
        labelled[members[: round(model.label_rate * len(members))]] = True
    return Papers(topic, labelled, draw_words(model, topic, rng), draw_citations(model, topic, rng))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = BlockModel()
    parser.add_argument("--papers", type=int, default=default.n_papers)
    parser.add_argument("--topics", type=int, default=default.n_topics)
    parser.add_argument("--degree", type=float, default=default.degree, help="Mean number of citations per paper.")
    parser.add_argument(
        "--homophily",
        type=float,
        default=default.homophily,
        help="Fraction of citations within a topic; below 1 / topics, topic k cites topic k + 1.",
    )
    parser.add_argument("--signal", type=float, default=default.signal, help="Fraction of words from the topic.")
    parser.add_argument("--label-rate", type=float, default=default.label_rate, help="Fraction of labelled papers.")
    parser.add_argument("--exponent", type=float, default=default.exponent, help="Exponent of the degrees, above 2.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="Folder to write.")
    options = parser.parse_args()
    model = BlockModel(
        options.papers,
        options.topics,
        options.degree,
        options.homophily,
        options.signal,
        options.label_rate,
        options.exponent,
    )
    papers = make_papers(model, np.random.default_rng(options.seed))
    options.out.mkdir(parents=True, exist_ok=True)
    tables = {**papers.tables(with_all_labels=False), "truth": papers.tables()["paper"]}
    for name, table in tables.items():
        table.to_parquet(options.out / f"{name}.parquet")
    print(f"wrote {options.papers:,} papers and {len(papers.cites):,} citations to {options.out}")


if __name__ == "__main__":
    main()
