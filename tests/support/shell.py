"""An interactive shell in a pseudoterminal, for tests of completion."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import time

ESCAPES = re.compile(r"\x1b\[[0-9;?>=]*[a-zA-Z]|\x1b[=>()][0-9A-B]?|\x1b[\]P][^\x07\x1b]*(?:\x07|\x1b\\)|\x07")
"""Control sequences of terminals: colours, movements of the cursor, titles, and the bell."""

COMMANDS = {"bash": ["bash", "--norc", "-i"], "zsh": ["zsh", "-f", "-i"], "fish": ["fish", "--no-config", "-i"]}
"""Commands that start the shells without the configuration of the user."""


class Shell:
    """A running shell; `expect` waits for its output."""

    def __init__(self, name, folder):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.environ.update(TERM="xterm", HOME=str(folder), COLUMNS="200", XDG_CONFIG_HOME=str(folder / ".config"))
            os.execvp(COMMANDS[name][0], COMMANDS[name])

    def type(self, text):
        os.write(self.terminal, text.encode())

    def expect(self, *texts, seconds=30):
        """Read until the output contains all texts; return it without control sequences."""
        end, output = time.monotonic() + seconds, b""
        while time.monotonic() < end:
            if select.select([self.terminal], [], [], 0.2)[0]:
                output += os.read(self.terminal, 65536)
                found = ESCAPES.sub("", output.decode(errors="replace"))
                if all(text in found for text in texts):
                    return found
        raise AssertionError(f"expected {texts}, found {output!r}")

    def close(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)
