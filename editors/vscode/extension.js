// Starts the language server `relcrf lsp` and connects it to VS Code for .rcrf files.

"use strict";

const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

/** @type {LanguageClient | undefined} */
let client;

async function start() {
  const [command, ...before] = vscode.workspace.getConfiguration("relcrf").get("command", ["relcrf"]);
  // Without a transport, the client uses standard input and output and does not append `--stdio`.
  const run = { command, args: [...before, "lsp"] };
  client = new LanguageClient("relcrf", "relcrf", run, {
    documentSelector: [
      { language: "rcrf", scheme: "file" },
      { language: "rcrf", scheme: "untitled" },
    ],
  });
  try {
    await client.start();
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

async function activate(context) {
  context.subscriptions.push(
    vscode.commands.registerCommand("relcrf.restart", restart),
    vscode.workspace.onDidChangeConfiguration((change) => {
      if (change.affectsConfiguration("relcrf.command")) {
        return restart();
      }
    })
  );
  await start();
}

module.exports = { activate, deactivate: stop };
