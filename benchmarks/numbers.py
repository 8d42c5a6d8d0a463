"""Start `number_targets.py`, the benchmark of predicted numbers.

Python searches the folder of a script first, so that this file hides the standard module of the same name. It is therefore
replaced by that module where another one imports it.
"""

import importlib.util
import runpy
import sys
import sysconfig
from pathlib import Path

if __name__ == "numbers" or "numbers" not in sys.modules:
    _spec = importlib.util.spec_from_file_location("numbers", Path(sysconfig.get_path("stdlib"), "numbers.py"))
    assert _spec is not None and _spec.loader is not None
    sys.modules["numbers"] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules["numbers"])

if __name__ == "__main__":
    runpy.run_path(str(Path(__file__).with_name("number_targets.py")), run_name="__main__")
