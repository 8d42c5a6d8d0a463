"""How many random examples a test tries: the same ones in every run, and `RELCRF_EXAMPLES` times as many where that is set."""

import os

from hypothesis import HealthCheck, Phase, settings

TIMES = int(os.environ.get("RELCRF_EXAMPLES", "1"))


def generated(examples: int) -> settings:
    """Settings of a test whose examples are slow; `examples` of them fit a run of all tests."""
    return settings(
        max_examples=examples * TIMES,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
    )
