"use strict";

const vscode = require("vscode");

/** Return the command that starts relcrf, as a list of the program and its first arguments. */
function relcrfCommand() {
  return vscode.workspace.getConfiguration("relcrf").get("command", ["relcrf"]);
}

module.exports = { relcrfCommand };
