// The commands that run relcrf on a model: check, plan, train, explain. They run as tasks, without a shell, so that
// paths may contain spaces and quotes.

"use strict";

const fs = require("node:fs");
const path = require("node:path");
const vscode = require("vscode");
const { relcrfCommand } = require("./settings");

const DATA_KEY = "data";
const VARIABLE_KEY = "variable";

/** Register the commands. `context.workspaceState` stores the folder of the tables and the last explained variable. */
function registerCommands(context) {
  const state = context.workspaceState;
  const status = vscode.languages.createLanguageStatusItem("relcrf.data", { language: "rcrf" });
  status.name = "relcrf tables";
  status.command = { command: "relcrf.selectData", title: "Select" };
  const showData = () => {
    const data = state.get(DATA_KEY);
    status.text = data === undefined ? "No tables" : path.basename(data);
    status.detail = data === undefined ? "relcrf" : `tables of relcrf: ${data}`;
  };
  showData();

  async function selectData() {
    const chosen = await vscode.window.showOpenDialog({
      title: "Folder of the tables",
      openLabel: "Use these tables",
      canSelectFolders: true,
      canSelectFiles: false,
    });
    if (chosen === undefined) {
      return undefined;
    }
    await state.update(DATA_KEY, chosen[0].fsPath);
    showData();
    return chosen[0].fsPath;
  }

  /** Return the selected folder of tables; ask if none is selected or if it has been moved. */
  async function requireData() {
    const data = state.get(DATA_KEY);
    return data !== undefined && fs.existsSync(data) ? data : selectData();
  }

  async function check(model) {
    const data = state.get(DATA_KEY);
    return run(model, "check", [model, ...(data !== undefined && fs.existsSync(data) ? ["--data", data] : [])]);
  }

  async function plan(model) {
    const data = await requireData();
    return data && run(model, "plan", [model, "--data", data]);
  }

  async function train(model) {
    const data = await requireData();
    if (data === undefined) {
      return undefined;
    }
    const folder = runFolder(model);
    const options = [];
    if (fs.existsSync(folder)) {
      const replace = "Replace";
      const message = `Replace the run folder ${vscode.workspace.asRelativePath(folder)}?`;
      if ((await vscode.window.showWarningMessage(message, { modal: true }, replace)) !== replace) {
        return undefined;
      }
      options.push("--force");
    }
    return run(model, "train", [model, "--data", data, "--out", folder, ...options]);
  }

  async function explain(model) {
    const folder = runFolder(model);
    if (!fs.existsSync(folder)) {
      vscode.window.showErrorMessage(`relcrf: there is no run folder ${folder}. Train the model first.`);
      return undefined;
    }
    const data = await requireData();
    const variable =
      data &&
      (await vscode.window.showInputBox({
        title: "Explain a prediction",
        prompt: "The variable, such as Page/17, Page/17.topic or linked(a, b)",
        value: state.get(VARIABLE_KEY),
      }));
    if (!variable) {
      return undefined;
    }
    await state.update(VARIABLE_KEY, variable);
    return run(model, "explain", [folder, variable, "--data", data]);
  }

  context.subscriptions.push(status, vscode.commands.registerCommand("relcrf.selectData", selectData));
  for (const [name, command] of Object.entries({ check, plan, train, explain })) {
    context.subscriptions.push(
      vscode.commands.registerCommand(`relcrf.${name}`, async (uri) => {
        const model = await savedModel(uri);
        return model && command(model);
      })
    );
  }
}

/** Return the path of the model of a menu or of the active editor, after saving it. */
async function savedModel(uri) {
  const active = vscode.window.activeTextEditor?.document;
  const target = uri ?? (active?.languageId === "rcrf" ? active.uri : undefined);
  if (target?.scheme !== "file") {
    vscode.window.showErrorMessage("relcrf: open a model, or save it as a .rcrf file, first.");
    return undefined;
  }
  const document = vscode.workspace.textDocuments.find((one) => one.uri.toString() === target.toString());
  const isSaved = !document?.isDirty || (await document.save());
  return isSaved ? target.fsPath : undefined;
}

/** Return the run folder of a model: `runs/NAME` in the folder of the model, where hovers find the learned weights. */
function runFolder(model) {
  return path.join(path.dirname(model), "runs", path.basename(model, ".rcrf"));
}

async function run(model, subcommand, args) {
  const [program, ...before] = relcrfCommand();
  const folder = vscode.workspace.getWorkspaceFolder(vscode.Uri.file(model));
  const task = new vscode.Task(
    { type: "relcrf", arguments: [subcommand, ...args] },
    folder ?? vscode.TaskScope.Workspace,
    `${subcommand} ${path.basename(model)}`,
    "relcrf",
    new vscode.ProcessExecution(program, [...before, subcommand, ...args], {
      cwd: folder?.uri.fsPath ?? path.dirname(model),
    })
  );
  task.presentationOptions = { reveal: vscode.TaskRevealKind.Always, clear: true };
  return vscode.tasks.executeTask(task);
}

module.exports = { registerCommands };
