"""A client of the language server, which runs as a process, and functions on positions and edits of its protocol."""

from __future__ import annotations

import itertools
import json
import queue
import subprocess
import sys
import threading

MAX_WAIT = 600
"""Timeout in seconds for a response of the server."""

CAPABILITIES = {
    "textDocument": {
        "publishDiagnostics": {"relatedInformation": True},
        "completion": {"completionItem": {"snippetSupport": True}},
        "rename": {"prepareSupport": True},
    },
    "workspace": {"didChangeWatchedFiles": {"dynamicRegistration": True}},
}


class Editor:
    """A minimal client that sends requests of an editor and collects notifications of the server."""

    def __init__(self, root, capabilities=CAPABILITIES):
        command = [sys.executable, "-c", "from relcrf.editor.server import main; main()"]
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        self.process = subprocess.Popen(command, cwd=root, **pipes)
        self.responses, self.published, self.log = queue.Queue(), queue.Queue(), []
        self.registered = []
        self.ids = itertools.count(1)
        self.versions = {}
        self.threads = [threading.Thread(target=read, daemon=True) for read in (self._read, self._read_log)]
        for thread in self.threads:
            thread.start()
        folder = {"uri": root.as_uri(), "name": "root"}
        self.capabilities = self.request(
            "initialize",
            {"processId": None, "rootUri": root.as_uri(), "workspaceFolders": [folder], "capabilities": capabilities},
        )["capabilities"]
        self.notify("initialized", {})

    def _read(self):
        while header := self.process.stdout.readline():
            while line := self.process.stdout.readline().strip():
                header = line if line.lower().startswith(b"content-length") else header
            message = json.loads(self.process.stdout.read(int(header.split(b":")[1])))
            if message.get("method") == "textDocument/publishDiagnostics":
                self.published.put(message["params"])
            elif message.get("method") == "client/registerCapability":
                self.registered += message["params"]["registrations"]
                self._send({"id": message["id"], "result": None})
            elif "method" not in message:
                self.responses.put(message)

    def _read_log(self):
        self.log += [line.decode() for line in self.process.stderr]

    def _send(self, message):
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.process.stdin.flush()

    def notify(self, method, params=None):
        self._send({"method": method, "params": params})

    def send_request(self, method, params=None):
        """Send a request and return the whole response, which may be an error."""
        number = next(self.ids)
        self._send({"id": number, "method": method, "params": params})
        found = self.responses.get(timeout=MAX_WAIT)
        assert found["id"] == number
        return found

    def request(self, method, params=None):
        found = self.send_request(method, params)
        assert "error" not in found, found["error"]
        return found["result"]

    def refusal(self, method, params=None):
        found = self.send_request(method, params)
        assert found["error"]["code"] == -32803, found
        return found["error"]["message"]

    # Documents

    def open(self, path, text=None):
        text = path.read_text() if text is None else text
        self.versions[path] = 1
        document = {"uri": path.as_uri(), "languageId": "rcrf", "version": 1, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": document})
        return self.diagnostics(path)

    def change(self, path, text):
        self.versions[path] += 1
        document = {"uri": path.as_uri(), "version": self.versions[path]}
        self.notify("textDocument/didChange", {"textDocument": document, "contentChanges": [{"text": text}]})

    def save(self, path):
        self.notify("textDocument/didSave", {"textDocument": {"uri": path.as_uri()}})

    def close(self, path):
        self.notify("textDocument/didClose", {"textDocument": {"uri": path.as_uri()}})
        del self.versions[path]

    def diagnostics(self, path):
        """Return the diagnostics of the latest version of a document."""
        while True:
            found = self.published.get(timeout=MAX_WAIT)
            if found["uri"] == path.as_uri() and found.get("version") == self.versions[path]:
                return found["diagnostics"]

    def shut_down(self):
        """Shut down the server; return its exit code and standard error."""
        self.request("shutdown")
        self.notify("exit")
        return self.wait()

    def wait(self):
        code = self.process.wait(MAX_WAIT)
        for thread in self.threads:
            thread.join(MAX_WAIT)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            pipe.close()
        return code, "".join(self.log)


def at(path, text, words, shift=0):
    """Return the position of the cursor `|` in a passage, which must occur exactly once in the text."""
    before = words.index("|") if "|" in words else 0
    words = words.replace("|", "")
    assert text.count(words) == 1, words
    offset = text.index(words) + before + shift
    line = text.count("\n", 0, offset)
    column = text[text.rfind("\n", 0, offset) + 1 : offset]
    character = len(column.encode("utf-16-le")) // 2
    return {"textDocument": {"uri": path.as_uri()}, "position": {"line": line, "character": character}}


def edited(text, edits):
    """Apply edits with UTF-16 columns to a text."""
    lines = text.split("\n")
    starts = [0, *itertools.accumulate(len(line) + 1 for line in lines)]

    def offset(place):
        line = lines[place["line"]] if place["line"] < len(lines) else ""
        units = line.encode("utf-16-le")[: 2 * place["character"]]
        return min(starts[place["line"]] + len(units.decode("utf-16-le")), len(text))

    spans = [(offset(e["range"]["start"]), offset(e["range"]["end"]), e["newText"]) for e in edits]
    for start, stop, new in sorted(spans, reverse=True):
        text = text[:start] + new + text[stop:]
    return text
