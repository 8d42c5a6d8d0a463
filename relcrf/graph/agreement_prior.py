"""Gaussian priors of agreement weights, estimated from the labels of linked variables or from their features."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array, diags_array

from relcrf.graph.adjacency import iter_expanded_scopes
from relcrf.graph.factor_graph import FactorGraph, FactorGroup
from relcrf.graph.labelled_factors import measure_homophily

MIN_PAIRS = 10
"""Number of labelled pairs below which features are needed, too. With 10 pairs, the standard error is about 0.8."""

PRIOR_DEVIATION, TEMPLATE_DEVIATION = 2.0, 1.0
"""Standard deviations of the log-odds of a template before its data are read, and of templates around their mean.
Log-odds of 3.5 have been measured (citations, of which 90 % are within one of five topics)."""

ATTENUATION, ATTENUATION_DEVIATION, MIN_DEVIATION = 0.7, 0.3, 0.2
"""Mean and standard deviation of the ratio of a learned weight to the log-odds of agreement, and the minimum deviation
of the weight. The ratio depends on what other templates explain and on cycles, not on the degree: with all labels and a
template of words, it is 1.0 to 1.4 on block models with mean degrees from 2 to 12, but 0.65 on Cora, which has triangles.
With a template of the words of linked papers, it is 0.4 to 1.2 and 0.42."""

MAX_CRITICAL_AGREEMENT = 2.0
"""Maximum of `critical_agreement`; chains and pairs have no critical weight."""

MIN_CONTRAST = 1.5
"""Minimum difference between the similarities of equal and different labels, in standard errors."""

MAX_COMPARED_PAIRS = 200_000
"""Maximum number of linked pairs whose features are compared."""

MIN_FRACTION_ERROR = 0.01
"""Minimum standard error of a fraction that is inferred from features; the assumptions do not hold exactly."""

N_SCALINGS = 50
"""Number of iterations of iterative scaling; 50 are exact to 1e-9 for the frequencies of the seven topics of Cora."""

_WEIGHTS = np.linspace(-8.0, 8.0, 321)
"""The weights at which posterior densities are evaluated."""


@dataclass(frozen=True)
class AgreementPrior:
    """A Gaussian prior of the weights of an agreement template.

    Args:
        pairs: Number of factors between two labelled variables.
        fraction: Fraction of linked pairs with equal labels: observed, or inferred from features if `from_features`.
        by_chance: Expected fraction if labels were independent of links.
        log_odds: Posterior mean of the log-odds of agreement relative to chance.
        standard_error: Posterior standard deviation of the log-odds.
    """

    pairs: int
    fraction: float
    by_chance: float
    log_odds: float
    standard_error: float
    from_features: bool = False

    @property
    def mean(self) -> float:
        """The prior mean of the weight, which is smaller than the log-odds; see `ATTENUATION`."""
        return ATTENUATION * self.log_odds

    @property
    def deviation(self) -> float:
        """The standard deviation of the weight: the standard error of the log-odds, and that of the attenuation."""
        attenuation = ATTENUATION_DEVIATION * self.log_odds
        return math.hypot(ATTENUATION * self.standard_error, attenuation, MIN_DEVIATION)

    @property
    def l2(self) -> float:
        """The strength of the L2 penalty `l2 / 2 * (w - mean)^2` that equals this prior."""
        return self.deviation**-2


class _Evidence(NamedTuple):
    """The data of one template; `log_likelihood` has the value at each of `_WEIGHTS`."""

    pairs: int
    fraction: float
    by_chance: float
    log_likelihood: np.ndarray
    from_features: bool


def estimate_agreement(
    graph: FactorGraph, templates: Mapping[int, Sequence[FactorGroup]], labels: np.ndarray
) -> dict[int, AgreementPrior]:
    """Estimate the prior of each agreement template that has data: `MIN_PAIRS` labelled pairs, or features of linked variables.

    The weight w determines the probability P that linked variables agree; see `_agreement_probability`. The weights of
    several templates are drawn around a common mean. If the labels also train the model, they are used twice (empirical
    Bayes).

    The pairs are treated as independent. `AgreementPrior.mean` accounts for cycles and for other templates.

    Args:
        templates: Groups of each agreement template by number, over two variables of one domain.
        labels: State of each labelled variable, and -1 for other variables, shape (n_variables,).
    """
    found = {number: _evidence(graph, groups, labels) for number, groups in templates.items()}
    data = {number: evidence for number, evidence in found.items() if evidence is not None}
    if not data:
        return {}
    # Weights (columns) around the common mean (rows), which has the remaining variance of the prior.
    given_mean = np.exp(-0.5 * (np.subtract.outer(_WEIGHTS, _WEIGHTS) / TEMPLATE_DEVIATION) ** 2)
    log_prior = -0.5 * _WEIGHTS**2 / (PRIOR_DEVIATION**2 - TEMPLATE_DEVIATION**2)
    likelihood = {k: np.exp(each.log_likelihood - each.log_likelihood.max()) for k, each in data.items()}
    log_mean = {k: np.log(given_mean @ each) for k, each in likelihood.items()}
    priors: dict[int, AgreementPrior] = {}
    for number, each in data.items():
        others = log_prior + sum((log_mean[k] for k in data if k != number), np.zeros(len(_WEIGHTS)))
        posterior = (np.exp(others - others.max()) @ given_mean) * likelihood[number]
        posterior /= posterior.sum()
        mean = float(posterior @ _WEIGHTS)
        deviation = math.sqrt(float(posterior @ (_WEIGHTS - mean) ** 2))
        priors[number] = AgreementPrior(each.pairs, each.fraction, each.by_chance, mean, deviation, each.from_features)
    return priors


def critical_agreement(groups: Sequence[FactorGroup], n_variables: int) -> float:
    """Return the agreement weight above which belief propagation may predict one state for all variables.

    Without other factors, uniform messages of k states are a stable fixed point while d (e^w - 1) / (e^w + k - 1) < 1,
    where d is the mean number of further links at the end of a link. The result is at most `MAX_CRITICAL_AGREEMENT`.

    Source: linear stability of belief propagation; see Mezard & Montanari (2009), Information, physics, and computation,
    section 17.3, for trees of Ising spins, whose coupling is w / 2.
    """
    degree = np.zeros(n_variables, dtype=np.int64)
    for first, second in _iter_pairs(groups):
        degree += np.bincount(np.concatenate((first, second)), minlength=n_variables)
    further = float((degree.astype(float) ** 2).sum() / max(degree.sum(), 1) - 1.0)
    k: int = min(group.cardinalities[0] for group in groups)
    critical = math.log((further + k - 1) / (further - 1)) if further > 1.0 else math.inf
    return min(critical, MAX_CRITICAL_AGREEMENT)


def _iter_pairs(groups: Sequence[FactorGroup]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the two variables of the factors of successive chunks, without factors over one variable twice."""
    for group in groups:
        for first, second in iter_expanded_scopes(group):
            yield first[first != second], second[first != second]


def _evidence(graph: FactorGraph, groups: Sequence[FactorGroup], labels: np.ndarray) -> _Evidence | None:
    """Return the data of one template; None if few labels are linked and features show nothing."""
    domain = graph.domains.number
    homophily = measure_homophily(groups, labels, domain)
    if homophily is None:
        return None
    pairs = homophily.pairs
    number = next((domain[first[0]] for first, _ in _iter_pairs(groups) if len(first)), None)
    if number is None:
        return None
    labels = np.where(domain == number, labels, -1)
    n_states = groups[0].cardinalities[0]
    if pairs >= MIN_PAIRS:
        n, frequency = pairs, np.array(homophily.frequencies)  # the two ends of a pair are correlated
    else:
        n, frequency = int((labels >= 0).sum()), np.bincount(labels[labels >= 0], minlength=n_states)
        frequency = frequency / max(n, 1)
    by_chance = float((frequency**2).sum())
    if n < 2 or by_chance == 1.0:
        return None
    # The expected sum of squared frequencies is too large by (1 - s) / n. More equal frequencies correct the sum.
    corrected = max((n * by_chance - 1) / (n - 1), 1.0 / n_states)
    shrinkage = math.sqrt((corrected - 1 / n_states) / max(by_chance - 1 / n_states, 1e-12))
    frequency, by_chance = 1 / n_states + shrinkage * (frequency - 1 / n_states), corrected
    agree = _agreement_probability(frequency)
    log_likelihood = homophily.equal * np.log(agree) + (pairs - homophily.equal) * np.log1p(-agree)
    if pairs >= MIN_PAIRS:
        return _Evidence(pairs, homophily.fraction, by_chance, log_likelihood, False)
    similarity = _compare_features(graph, groups, labels, domain == number, by_chance)
    if similarity is None:
        return None
    fraction, error = similarity
    log_likelihood -= 0.5 * ((agree - fraction) / error) ** 2
    return _Evidence(pairs, min(max(fraction, 0.0), 1.0), by_chance, log_likelihood, True)


def _agreement_probability(frequency: np.ndarray) -> np.ndarray:
    """Return the probability that two variables of a factor `exp(w [a = b])` agree, for each w in `_WEIGHTS`.

    Both variables have the given state frequencies pi: p(a, b) is proportional to u_a u_b exp(w [a = b]), where u follows
    by iterative scaling. For equal frequencies, P = e^w s / (e^w s + 1 - s) with s = sum pi^2.

    Source: Deming & Stephan (1940), iterative proportional fitting; here of a symmetric table.
    """
    gain = np.expm1(_WEIGHTS)[:, None]
    scale = np.tile(frequency, (len(_WEIGHTS), 1))
    for _ in range(N_SCALINGS):
        scale = np.sqrt(scale * frequency / (scale.sum(axis=1, keepdims=True) + gain * scale))
    probability = (np.exp(_WEIGHTS)[:, None] * scale**2).sum(axis=1)
    return np.asarray(np.clip(probability, 1e-9, 1 - 1e-9))


def _compare_features(
    graph: FactorGraph, groups: Sequence[FactorGroup], labels: np.ndarray, members: np.ndarray, by_chance: float
) -> tuple[float, float] | None:
    """Return the fraction of linked pairs that agree, inferred from features, and its standard error; None if unknown.

    The cosine similarity of linked pairs exceeds that of random pairs by P - s times the difference between pairs of
    equal and of different labels, if links depend on features only through labels. An estimate of P above 1 contradicts
    this. Features that are computed along the links are an example. Of several templates, the one with the smallest P is
    used, because a violation of the assumption increases P.

    Args:
        members: Mask of the variables of the domain.
    """
    first, second = (np.concatenate(column) for column in zip(*_iter_pairs(groups), strict=True))
    step = max(1, -(-len(first) // MAX_COMPARED_PAIRS))
    first, second = first[::step], second[::step]
    found: list[tuple[float, float]] = []
    for block in sorted({g.block for g in graph.groups if len(g.scope) == 1 and not g.features.rows_are_equal}):
        features = _unit_rows(graph, block, members)
        contrast, contrast_error = _label_contrast(features, labels)
        if not contrast > MIN_CONTRAST * contrast_error:
            continue
        linked = np.asarray((features[first] * features[second]).sum(axis=1)).ravel()
        degree = np.bincount(np.concatenate((first, second)), minlength=len(labels)).astype(float)
        total, squares = np.asarray(degree @ features), np.asarray((features * features).sum(axis=1)).ravel()
        n_random = degree.sum() ** 2 - (degree**2).sum()
        random = (total @ total - (degree**2) @ squares) / max(n_random, 1.0)
        excess = linked.mean() - random
        error = math.hypot(linked.std() / math.sqrt(len(linked)), excess * contrast_error / contrast) / contrast
        fraction, error = by_chance + float(excess / contrast), max(error, MIN_FRACTION_ERROR)
        if fraction - error <= 1.0:
            found.append((fraction, error))
    return min(found, default=None)


def _unit_rows(graph: FactorGraph, block: int, members: np.ndarray) -> csr_array:
    """Return the features of each variable in the factors of a block, as rows of norm 1 or 0."""
    shape = (graph.n_variables, graph.layout.blocks[block].n_features)
    features = csr_array(shape)
    for group in graph.groups:
        if group.block == block:
            row, feature, value = group.features.entries(np.arange(group.n_factors))
            features += csr_array((value, (np.asarray(group.scope[0])[row], feature)), shape=shape)
    norm = np.sqrt(np.asarray((features * features).sum(axis=1), dtype=np.float64).ravel())
    scale = np.divide(1.0, norm, out=np.zeros_like(norm), where=members & (norm > 0.0))
    return csr_array(diags_array(scale) @ features)


def _label_contrast(features: csr_array, labels: np.ndarray) -> tuple[float, float]:
    """Return how much larger the mean similarity is for equal labels than for different labels, and the standard error.

    The error is that of a U-statistic: twice the deviation of a variable's mean difference, by the root of their number.
    """
    known = np.flatnonzero(labels >= 0)
    rows, label = features[known], labels[known]
    count = np.bincount(label)
    sums = csr_array((np.ones(len(known)), (label, np.arange(len(known)))), shape=(len(count), len(known))) @ rows
    similarity = (rows @ sums.T).toarray()  # of each variable to the sum of each class
    own = similarity[np.arange(len(known)), label]
    n_equal, n_different = count[label] - 1, len(known) - count[label]
    has_both = (n_equal > 0) & (n_different > 0)
    if has_both.sum() < 2:
        return 0.0, math.inf
    equal = (own - np.asarray((rows * rows).sum(axis=1)).ravel())[has_both] / n_equal[has_both]
    difference = equal - (similarity.sum(axis=1) - own)[has_both] / n_different[has_both]
    return float(difference.mean()), 2.0 * float(difference.std()) / math.sqrt(len(difference))
