"""Hypothesis settings: deterministic examples, multiplied by `RELCRF_EXAMPLES` if that is set."""

import os

from hypothesis import HealthCheck, Phase, settings

TIMES = int(os.environ.get("RELCRF_EXAMPLES", "1"))


def generated(examples: int) -> settings:
    """Return the settings of a test with slow examples; `examples` is their number in a normal run."""
    return settings(
        max_examples=examples * TIMES,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
    )
