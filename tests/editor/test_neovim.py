"""The language server in Neovim, without a terminal; recent versions use the settings of docs/how-to/editor.md."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from relcrf.language.format import format_text

pytest.importorskip("pygls")

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "editor.md"
(DOCUMENTED_SETTINGS,) = re.findall(r"```lua\n(.*?)```", PAGE.read_text(), re.DOTALL)

SETTINGS_BEFORE_0_11 = """
vim.api.nvim_create_autocmd({ "BufRead", "BufNewFile" }, {
  pattern = "*.rcrf",
  callback = function()
    local id = vim.lsp.start_client({ name = "relcrf", cmd = { "relcrf", "lsp" }, root_dir = vim.fn.getcwd() })
    vim.lsp.buf_attach_client(0, id)
  end,
})
"""

SESSION = """
local function run()
  local function wait_for(what, condition)
    assert(vim.wait(120000, condition, 20), "no " .. what)
  end
  local diagnostics = function() return vim.diagnostic.get(0) end
  wait_for("diagnostics", function() return #diagnostics() > 0 end)
  local found = diagnostics()[1]
  local range = { found.lnum, found.col, found.end_col }

  vim.api.nvim_win_set_cursor(0, { found.lnum + 1, found.col })
  local titles = {}
  vim.ui.select = function(items, options, choose)
    for _, item in ipairs(items) do table.insert(titles, (options.format_item(item))) end
    choose(items[1], 1)
  end
  local before = vim.api.nvim_buf_get_lines(0, 0, -1, false)
  vim.lsp.buf.code_action()
  wait_for("code action", function() return not vim.deep_equal(before, vim.api.nvim_buf_get_lines(0, 0, -1, false)) end)
  wait_for("check after the code action", function() return #diagnostics() == 0 end)
  vim.cmd("write fixed.rcrf")

  if vim.lsp.buf.format then vim.lsp.buf.format({ timeout_ms = 120000 }) else vim.lsp.buf.formatting_sync(nil, 120000) end
  vim.cmd("write formatted.rcrf")
  local report = { message = found.message, range = range, titles = titles }
  vim.fn.writefile({ vim.fn.json_encode(report) }, "report.json")
end
local is_done, message = pcall(run)
if not is_done then print(message) end
vim.cmd(is_done and "qall!" or "cquit!")
"""

MODEL = """\
domain Category = { course, faculty }

entity Page {
    predict category : Category
    words: bag of Word
}

template prior(a: Page)
    over a.category
"""


def test_session(tmp_path):
    """Open a model, read its diagnostic, apply its quick fix, and format the text."""
    neovim = shutil.which("nvim")
    if neovim is None:
        pytest.skip("needs Neovim")
    version = subprocess.run([neovim, "--version"], capture_output=True, text=True).stdout
    number = tuple(map(int, re.search(r"NVIM v(\d+)\.(\d+)", version).groups()))
    (tmp_path / "init.lua").write_text(DOCUMENTED_SETTINGS if number >= (0, 11) else SETTINGS_BEFORE_0_11)
    (tmp_path / "session.lua").write_text(SESSION)
    (tmp_path / "model.rcrf").write_text(MODEL)
    program = tmp_path / "bin" / "relcrf"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m relcrf "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}
    environment |= {f"XDG_{name}_HOME": str(tmp_path / name) for name in ("CONFIG", "DATA", "STATE", "CACHE")}
    command = [neovim, "--headless", "-i", "NONE", "-n", "-u", "init.lua", "model.rcrf", "-S", "session.lua"]
    found = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert found.returncode == 0, found.stderr
    start = len("    words: bag of ")
    assert json.loads((tmp_path / "report.json").read_text()) == {
        "message": "unknown type 'Word'\nhelp: declare it: domain Word = open; the types are Category",
        "range": [4, start, start + len("Word")],
        "titles": ["Declare domain Word = open"],
    }
    fixed = MODEL.replace("}\n\nentity", "}\ndomain Word = open\n\nentity")
    assert (tmp_path / "fixed.rcrf").read_text() == fixed
    formatted = (tmp_path / "formatted.rcrf").read_text()
    assert formatted == format_text(fixed) != fixed
