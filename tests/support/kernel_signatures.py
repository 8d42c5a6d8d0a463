"""A check after each file of tests: kernels are called only with the types for which `relcrf warmup` compiles them.

Numba compiles a kernel again for any other types, which takes seconds in the user's first training.
"""

import sys

import pytest

_reported = set()


@pytest.fixture(scope="module", autouse=True)
def only_declared_signatures():
    yield
    if "relcrf.kernels.compile" not in sys.modules:
        return
    undeclared = {
        f"{name}({', '.join(map(str, signature))})"
        for name, kernel in sys.modules["relcrf.kernels.compile"].KERNELS.items()
        for signature in getattr(kernel.dispatcher, "overloads", {})
        if signature not in kernel.signatures and kernel.dispatcher.py_func.__module__.startswith("relcrf.")
    } - _reported
    _reported.update(undeclared)
    assert not undeclared, "kernels were called with types that their decorators do not declare:\n" + "\n".join(
        undeclared
    )
