"""The domains of the variables of a grounding, and the schema of a vector with one number per state of a domain."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relcrf.graph.domains import Domains
from relcrf.grounding.variables import VariableBlock
from relcrf.model.types import BOOL_VALUES


def domain_blocks(blocks: Sequence[VariableBlock]) -> list[list[VariableBlock]]:
    """Return the blocks of variables of each domain.

    Blocks with the same values share a domain. Each Boolean block has a separate domain, because equal values of
    different properties, such as `smokes` and `cancer`, have no common meaning.
    """
    by_domain: dict[object, list[VariableBlock]] = {}
    for block in blocks:
        by_domain.setdefault(block.name if block.values == BOOL_VALUES else block.values, []).append(block)
    return list(by_domain.values())


def variable_domains(blocks: Sequence[VariableBlock]) -> Domains:
    """Return the domains of all variables of a grounding; see `domain_blocks`."""
    domains = domain_blocks(blocks)
    number = np.empty(sum(block.count for block in blocks), dtype=np.int32)
    for k, members in enumerate(domains):
        for block in members:
            number[block.start : block.start + block.count] = k
    return Domains(number, tuple(len(members[0].values) for members in domains))
