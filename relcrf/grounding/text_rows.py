"""Similarities of texts: sparse matrices with a row of token weights for each text, and functions that compare two rows.

The matrices are tables of the bound model. DuckDB compares two rows by a function of their vids that calls a kernel; the other
engines join the tables (see `similarity_term`). The function takes less than a microsecond for a pair of titles of 8 words and
needs no memory for the pairs. A join in DuckDB takes between a seventh of this time and 130 times as long, depending on the
order of the joins that DuckDB chooses (`benchmarks/texts.py`).
"""

from __future__ import annotations

import re
import weakref
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from unicodedata import normalize

import numpy as np
from scipy.sparse import csr_array, vstack

from relcrf.data.bound_model import BoundModel
from relcrf.data.dataset import quoted
from relcrf.data.names import attribute_column, entity_table, text_table, token_table
from relcrf.data.stream import stream_batches
from relcrf.grounding import plan as p
from relcrf.grounding.propagation import divide_by_norm, inverse_document_frequencies, multiply_by_idf
from relcrf.kernels.sparse_rows import row_similarity
from relcrf.model.text_similarity import TextColumn, TextSimilarity, text_similarities

_WORD = re.compile(r"[^\W_]+")


def split_tokens(text: str, length: int = 0) -> list[str]:
    """Return the tokens of a text: its lower-cased runs of letters and digits, in the normal form NFC of Unicode.

    Args:
        length: if it is not 0, the tokens are the n-grams of this number of characters of the words joined by spaces.
    """
    words = _WORD.findall(normalize("NFC", text))
    if not length:
        return [word.lower() for word in words]
    joined = " ".join(words).lower()
    return [joined[k : k + length] for k in range(len(joined) - length + 1)]


@dataclass(frozen=True)
class TextRows:
    """The rows of the texts of a column: the weights of their tokens in CSR form. The row of a missing text is empty.

    Args:
        start: first entry of each row, shape (n + 1,), int64.
        code: ascending codes of the tokens of each row, int32.
        weight: positive weight of each entry, float64.
        size: number of distinct tokens of each text if the similarity is the Jaccard similarity, otherwise 1, shape (n,);
            NaN if the text is missing.
    """

    start: np.ndarray
    code: np.ndarray
    weight: np.ndarray
    size: np.ndarray

    @classmethod
    def from_tables(cls, bound: BoundModel, similarity: TextSimilarity, column: TextColumn) -> TextRows:
        """Return the rows in the tables that `create_text_functions` registered."""
        tokens = bound.external_tables[token_table(str(similarity), *column)]
        texts = bound.external_tables[text_table(str(similarity), *column)]
        n = bound.sizes[column[0]]
        start = np.concatenate([[0], np.cumsum(np.bincount(tokens["vid"], minlength=n))])
        size = np.full(n, np.nan)
        size[texts["vid"]] = texts["size"]
        return cls(start.astype(np.int64), tokens["code"], tokens["weight"], size)

    def concatenate(self, other: TextRows) -> TextRows:
        """Return these rows followed by other rows."""
        arrays = ((self.code, other.code), (self.weight, other.weight), (self.size, other.size))
        start = np.concatenate((self.start, self.start[-1] + other.start[1:]))
        return TextRows(start, *(np.concatenate(pair) for pair in arrays))


def create_text_functions(bound: BoundModel) -> None:
    """Create the tables and the SQL function of each text similarity of the model, unless they exist already."""
    for k, similarity in enumerate(text_similarities(bound.spec)):
        if token_table(str(similarity), *similarity.columns[0]) in bound.external_tables:
            continue
        _register_rows(bound, similarity)
        left, right = similarity.columns
        rows, offset = TextRows.from_tables(bound, similarity, left), 0
        if left != right:
            rows, offset = rows.concatenate(TextRows.from_tables(bound, similarity, right)), len(rows.size)
        function, store = f"{bound.schema}_similarity{k}", bound.dataset.store
        store.add_function(function, _RowFunction(rows, offset, has_sizes(similarity)), bound.connection)
        weakref.finalize(bound, store.remove_function, function).atexit = False
        # The macro is a function of the same name in the schema of each model that is bound to the dataset.
        bound.connection.execute(f"CREATE MACRO {quoted(str(similarity))}(a, b) AS {function}(a, b)")


def has_sizes(similarity: TextSimilarity) -> bool:
    """Return True if a similarity is the Jaccard similarity of the tokens, which depends on the numbers of tokens."""
    return similarity.function == "token_jaccard"


def similarity_term(similarity: TextSimilarity, left: p.Column, right: p.Column) -> p.Term:
    """Return the similarity of two texts as a term; it is null if a text is missing.

    Args:
        left, right: vids of the entities of the first and of the second column of the similarity.
    """
    name = str(similarity)
    columns, scans = similarity.columns, ("left", "right")
    weights = tuple(p.Column(alias, "weight") for alias in scans)
    rows = p.Plan(
        tuple(p.Scan(token_table(name, *column), alias) for column, alias in zip(columns, scans, strict=True)),
        (
            (p.Column("left", "vid"), left),
            (p.Column("right", "vid"), right),
            (p.Column("left", "code"), p.Column("right", "code")),
        ),
    )
    product = p.AggregateTerm("sum", (p.Call("*", weights),), rows)
    sizes = tuple(
        p.Lookup(text_table(name, *column), "size", "vid", vid)
        for column, vid in zip(columns, (left, right), strict=True)
    )
    if has_sizes(similarity):
        united = p.Call("-", (p.Call("+", sizes), product))
        definition = p.Call("/", (product, p.Call("greatest", (p.Constant(1), united))))
    else:
        definition = p.Call("*", (product, p.Call("*", sizes)))
    return p.DefinedCall(name, (left, right), definition)


@dataclass(frozen=True)
class _RowFunction:
    """A function of two vids that SQL calls; it returns the similarity of their texts, or None if a text is missing.

    Args:
        rows: the rows of the first column and, if it differs, of the second column.
        offset: index of the first row of the second column.
    """

    rows: TextRows
    offset: int
    has_sizes: bool
    parameters = ("index", "index")
    result = "real"

    def __call__(self, a: int, b: int) -> float | None:
        rows = self.rows
        value: float = row_similarity(rows.start, rows.code, rows.weight, rows.size, self.has_sizes, a, b + self.offset)
        return None if value != value else value


def _register_rows(bound: BoundModel, similarity: TextSimilarity) -> None:
    """Compute the rows of both columns of a similarity and register them as tables."""
    name, columns = str(similarity), list(dict.fromkeys(similarity.columns))
    known = bound.tokens.get(name, ())
    index: defaultdict[str, int] = defaultdict(count(len(known)).__next__, {token: k for k, token in enumerate(known)})
    texts = [_read_codes(bound, column, index, similarity.length) for column in columns]
    new = sorted(list(index)[len(known) :])
    rank = np.arange(len(index), dtype=np.int32)
    rank[[index[token] for token in new]] = np.arange(len(known), len(index), dtype=np.int32)
    vids = [vid for vid, _, _ in texts]
    counts = [_count_tokens(rank[codes], start, len(index)) for _, codes, start in texts]
    if has_sizes(similarity):
        sizes = [np.diff(rows.indptr).astype(np.float64) for rows in counts]
        for rows in counts:
            rows.data[:] = 1.0
    else:
        sizes = [np.ones(len(vid)) for vid in vids]
        if name not in bound.statistics:
            bound.statistics[name] = inverse_document_frequencies(csr_array(vstack(counts)))
            bound.tokens[name] = (*known, *new)
        counts = [divide_by_norm(multiply_by_idf(rows, bound.statistics[name])) for rows in counts]
    for column, vid, rows, size in zip(columns, vids, counts, sizes, strict=True):
        rows.sort_indices()
        tokens = {"vid": np.repeat(vid, np.diff(rows.indptr)), "code": rows.indices.astype(np.int32)}
        bound.register_columns(token_table(name, *column), {**tokens, "weight": rows.data})
        bound.register_columns(text_table(name, *column), {"vid": vid, "size": size})


def _read_codes(
    bound: BoundModel, column: TextColumn, index: defaultdict[str, int], length: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the vids of the known texts of a column, the codes of their tokens, and the first code of each text.

    Args:
        index: code of each token; new tokens get the next codes.
    """
    entity, attribute = column
    text = quoted(attribute_column(attribute))
    query = f"SELECT vid, {text} AS text FROM {quoted(entity_table(entity))} WHERE {text} IS NOT NULL ORDER BY vid"
    vids, codes, lengths = [np.empty(0, np.int32)], [np.empty(0, np.int32)], [np.zeros(1, np.int64)]
    for batch in stream_batches(bound.connection.sql(query), {"vid": np.int32, "text": object}):
        tokens: Sequence[list[str]] = [split_tokens(value, length) for value in batch["text"]]
        vids.append(batch["vid"].copy())
        lengths.append(np.fromiter(map(len, tokens), np.int64, len(tokens)))
        codes.append(np.fromiter((index[token] for text_tokens in tokens for token in text_tokens), np.int32))
    return np.concatenate(vids), np.concatenate(codes), np.cumsum(np.concatenate(lengths))


def _count_tokens(codes: np.ndarray, start: np.ndarray, n_tokens: int) -> csr_array:
    """Return the number of occurrences of each token in each text, shape (n_texts, n_tokens)."""
    counts = csr_array((np.ones(len(codes)), codes, start), shape=(len(start) - 1, n_tokens))
    counts.sum_duplicates()
    return counts
