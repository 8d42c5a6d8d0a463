"""Build hook: if the environment sets RELCRF_COMPILE_KERNELS, the wheel contains compiled kernels.

The value is a pattern of names of kernels; `*` selects all. Such a wheel is for one version of Python and one platform, but
needs no compilation at the first use. Without the variable, the wheel is for all platforms.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VARIABLE = "RELCRF_COMPILE_KERNELS"


class KernelHook(BuildHookInterface):  # type: ignore[type-arg]
    """Compiles the kernels into the folder `relcrf/kernels/portable` of the wheel."""

    def dependencies(self) -> list[str]:
        """Return the packages that the compilation imports: those of relcrf."""
        return self.metadata.core.dependencies if os.environ.get(VARIABLE) else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the kernels, and add them to the files of the wheel."""
        pattern = os.environ.get(VARIABLE)
        if not pattern or version == "editable":
            return
        self._folder = tempfile.TemporaryDirectory()
        path = os.pathsep.join(filter(None, (self.root, os.environ.get("PYTHONPATH"))))
        command = [sys.executable, "-m", "relcrf.kernels.portable", self._folder.name, pattern]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": path})
        build_data["force_include"][self._folder.name] = "relcrf/kernels/portable"
        python = f"cp{sys.version_info.major}{sys.version_info.minor}"
        build_data["pure_python"] = False
        build_data["tag"] = f"{python}-{python}-{_platform()}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the compiled kernels."""
        if hasattr(self, "_folder"):
            self._folder.cleanup()


def _platform() -> str:
    """Return the platform of the wheel. The kernels need no library, so that those of Linux run with any glibc of manylinux."""
    name = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return name.replace("linux_", "manylinux_2_17_", 1)
