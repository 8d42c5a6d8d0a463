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

async function start() {
  const [command, ...before] = relcrfCommand();
  // Without a transport, the client uses standard input and output and does not append `--stdio`.
  const run = { command, args: [...before, "lsp"] };
  client = new Client("relcrf", "relcrf", run, {
    documentSelector: [
      { language: "rcrf", scheme: "file" },
      { language: "rcrf", scheme: "untitled" },
    ],
  });
  try {
    await client.start();
    client.isStarting = false;
  } catch (error) {
    client = undefined;
    const choice = await vscode.window.showErrorMessage(
      `relcrf: the language server '${run.command} ${run.args.join(" ")}' cannot be started (${error.message}). ` +
        "Install it with: pip install 'relcrf[editor]', or set its path in relcrf.command.",
      "Open the setting"
    );
    if (choice) {
      await vscode.commands.executeCommand("workbench.action.openSettings", "relcrf.command");
    }
  }
}

async function stop() {
  const running = client;
  client = undefined;
  await running?.stop();
}

async function restart() {
  await stop();
  await start();
}

module.exports = { restart, start, stop };
