"""A picture of a terminal with a command and its output.

python docs/site/terminal_picture.py docs/pictures/demo.svg relcrf demo
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

COLUMNS = 110


def picture(argv: list[str], path: Path) -> None:
    """Run a command and write a picture of its standard output.

    Raises:
        subprocess.CalledProcessError: The command failed.
    """
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "FORCE_COLOR": "1"}
    done = subprocess.run(
        argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True
    )
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    console.print(Text.assemble(("$ ", "bold green"), shlex.join(argv)), soft_wrap=True)
    console.print(Text.from_ansi(done.stdout))
    # Remove the font URL: the page must not load external resources.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", console.export_svg(title=argv[0], theme=MONOKAI), flags=re.DOTALL)
    path.write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    picture(sys.argv[2:], Path(sys.argv[1]))
