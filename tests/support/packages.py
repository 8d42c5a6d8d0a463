"""Plugin packages: modules with entry points that are installed for one test."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

import relcrf

DOCS = Path(relcrf.__file__).parent.parent / "docs"


def blocks(page: str) -> dict[str, str]:
    """Return the first code block of each language on a page of docs/."""
    found = re.findall(r"^```(\w+)\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    return dict(reversed(found))


class Packages:
    """An installer of packages into a folder on the import path of this process and its child processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self, name: str, group: str, entries: dict[str, str], code: str) -> None:
        """Install a package of one module with entry points of the form `name = module:object`."""
        for module in {value.partition(":")[0] for value in entries.values()}:
            (self.folder / f"{module}.py").write_text(code)
            sys.modules.pop(module, None)
        info = self.folder / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [f"[{group}]", *(f"{entry} = {value}" for entry, value in entries.items())]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n")

    def install_page(self, page: str) -> dict[str, str]:
        """Install the package on a page of docs/how-to/extending; return the code blocks of the page."""
        found = blocks(page)
        ((group, entries),) = tomllib.loads(found["toml"])["project"]["entry-points"].items()
        self.install(Path(page).stem, group, entries, found["python"])
        return found


@pytest.fixture
def packages(tmp_path, monkeypatch):
    folder = tmp_path / "installed"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return Packages(folder)
