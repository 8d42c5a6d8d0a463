// The client of the language server `relcrf lsp`.

"use strict";

const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");
const { relcrfCommand } = require("./settings");

/** A client that does not show its own message if the server cannot be started; `start` shows one with the setting. */
class Client extends LanguageClient {
  isStarting = true;

  error(message, data, showNotification) {
    super.error(message, data, this.isStarting ? false : showNotification);
  }
}

/** @type {Client | undefined} */
let client;

/** The last start or stop; the client cannot be stopped while it starts. */
let last = Promise.resolve();

function inOrder(step) {
  last = last.then(step, step);
  return last;
}

async function startClient() {
  const [command, ...before] = relcrfCommand();
  // Without a transport, the client uses standard input and output and does not append `--stdio`.
  const run = { command, args: [...before, "lsp"] };
  const starting = new Client("relcrf", "relcrf", run, {
    documentSelector: [
      { language: "rcrf", scheme: "file" },
      { language: "rcrf", scheme: "untitled" },
    ],
  });
  try {
    await starting.start();
    starting.isStarting = false;
    client = starting;
  } catch (error) {
    void reportFailure(run, error); // the message may remain open while the setting is changed
  }
}

async function stopClient() {
  const running = client;
  client = undefined;
  await running?.stop();
}

async function reportFailure({ command, args }, error) {
  const choice = await vscode.window.showErrorMessage(
    `relcrf: the language server '${[command, ...args].join(" ")}' cannot be started (${error.message}). ` +
      "Install it with: pip install 'relcrf[editor]', or set its path in relcrf.command.",
    "Open the setting"
  );
  if (choice) {
    await vscode.commands.executeCommand("workbench.action.openSettings", "relcrf.command");
  }
}

const start = () => inOrder(startClient);
const stop = () => inOrder(stopClient);
const restart = () =>
  inOrder(async () => {
    await stopClient();
    await startClient();
  });

module.exports = { restart, start, stop };
