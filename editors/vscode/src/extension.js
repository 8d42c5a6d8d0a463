// The entry point of the extension: the language server and the commands for .rcrf files.

"use strict";

const vscode = require("vscode");
const client = require("./client");
const { registerCommands } = require("./commands");

async function activate(context) {
  registerCommands(context);
  context.subscriptions.push(
    vscode.commands.registerCommand("relcrf.restart", client.restart),
    vscode.workspace.onDidChangeConfiguration((change) => {
      if (change.affectsConfiguration("relcrf.command")) {
        return client.restart();
      }
    })
  );
  await client.start();
}

module.exports = { activate, deactivate: client.stop };
