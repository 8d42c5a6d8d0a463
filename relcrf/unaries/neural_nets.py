"""Neural networks as estimators: training that is reproducible, and storage of the trained weights as arrays.

skorch gives a module of PyTorch the interface of an estimator of scikit-learn. A network is stored as the arrays of its
parameters and buffers. Loading builds the network again from the installed class that the model names, so that no code is
read from a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np


def is_network(model: Any) -> bool:
    """Return True if an estimator is a network of skorch."""
    return any(each.__module__.partition(".")[0] == "skorch" for each in type(model).__mro__)


@contextmanager
def seeded(model: Any, seed: int) -> Iterator[None]:
    """Seed the random numbers of PyTorch inside the context if the estimator is a network, and restore their state."""
    if not is_network(model):
        yield
        return
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def to_arrays(network: Any) -> dict[str, Any]:
    """Return the parameters, the buffers and, for a classifier, the classes of a trained network."""
    state = network.module_.state_dict()
    plain = {"state": {name: tensor.detach().cpu().numpy() for name, tensor in state.items()}}
    return plain | ({"classes": np.asarray(network.classes_)} if hasattr(network, "classes_") else {})


def from_arrays(network: Any, plain: Mapping[str, Any]) -> Any:
    """Return a network, which is not trained, with the parameters, buffers and classes of `to_arrays`.

    Raises:
        RuntimeError: if the parameters of the network have other names or shapes.
    """
    import torch

    network.initialize()
    network.module_.load_state_dict({name: torch.as_tensor(array) for name, array in plain["state"].items()})
    if "classes" in plain:
        network.classes_inferred_ = plain["classes"]
    return network
