"""Consistent clusters of records from the probabilities that pairs of records match."""

from relcrf.clustering.costs import cost_threshold, parse_costs
from relcrf.clustering.partition import METHODS, Clustering, cluster_records
from relcrf.clustering.records import RecordClusters, cluster_prediction

__all__ = [
    "METHODS",
    "Clustering",
    "RecordClusters",
    "cluster_prediction",
    "cluster_records",
    "cost_threshold",
    "parse_costs",
]
