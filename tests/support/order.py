"""The order of the tests.

The tests of the Spark session are the first, so that one worker starts Spark and not two. The other slow tests follow, so that
no worker waits at the end for the slow test of another.
"""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests; tests of equal rank keep their order."""
    items.sort(key=lambda item: (not _uses_spark(item), item.get_closest_marker("slow") is None))


def _uses_spark(item: pytest.Item) -> bool:
    """Return True if the test has the fixture `spark`, or a parameter of this name, for which it requests the fixture."""
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return "spark" in getattr(item, "fixturenames", ()) or any(isinstance(p, str) and p == "spark" for p in parameters)
