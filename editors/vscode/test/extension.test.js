// Tests of the built extension with the real language client and the real relcrf, in a host without VS Code.
//
// RELCRF_COMMAND is the command of relcrf as a JSON list; RELCRF_EXTENSION is the folder of the unpacked extension.

"use strict";

const assert = require("node:assert/strict");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const { after, before, test } = require("node:test");
const { setImmediate } = require("node:timers/promises");
const { Host } = require("./host");

const COMMAND = JSON.parse(process.env.RELCRF_COMMAND ?? '["relcrf"]');
const EXTENSION = process.env.RELCRF_EXTENSION ?? path.join(__dirname, "..");
const MANIFEST = JSON.parse(fs.readFileSync(path.join(EXTENSION, "package.json"), "utf8"));

const MODEL = `domain Category = { course, faculty }

entity Page {
    predict category : Category
    length           : real
}

relation Link(source: Page, target: Page)

template prior(a: Page)
    over a.category

template pair(a: Page, b: Page)
    where Link(a, b)
    over  a.category, b.category
`;

let host;

before(async () => {
  const root = path.join(fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "relcrf-"))), "a folder with 'quotes'");
  fs.mkdirSync(path.join(root, "the data"), { recursive: true });
  const pages = Array.from({ length: 8 }, (_, k) => `p${k},${k < 4 ? ["course", "faculty"][k % 2] : ""},${k}.5`);
  fs.writeFileSync(path.join(root, "the data", "Page.csv"), ["id,category,length", ...pages, ""].join("\n"));
  const links = Array.from({ length: 7 }, (_, k) => `p${k},p${k + 1}`);
  fs.writeFileSync(path.join(root, "the data", "Link.csv"), ["source,target", ...links, ""].join("\n"));
  host = new Host(root, { "relcrf.command": COMMAND });
  await host.load(path.join(EXTENSION, MANIFEST.main));
});

after(async () => {
  await host.unload();
  fs.rmSync(path.dirname(host.root), { recursive: true });
});

/** Open a model; close it after the test. */
function open(t, text, name = "a model.rcrf") {
  const document = host.open(name, text);
  t.after(() => host.close(document));
  return document;
}

function apply(action) {
  host.applyWorkspaceEdit(action.edit);
}

function actionsAt(document, range, only) {
  const context = { diagnostics: [], only, triggerKind: 1 };
  return host.provide("CodeActionsProvider", "provideCodeActions", document, range, context);
}

test("every command of the manifest is registered", () => {
  const declared = MANIFEST.contributes.commands.map((one) => one.command).sort();
  assert.deepEqual(Object.keys(host.commands).sort(), declared);
  const inMenus = Object.values(MANIFEST.contributes.menus).flat().flatMap((item) => item.command ?? []);
  assert.deepEqual(inMenus.filter((name) => !declared.includes(name)), []);
});

test("diagnostics follow changes", async (t) => {
  const document = open(t, MODEL.replace(": real", ": reel"));
  const [wrong] = await host.expectDiagnostics(document, ["E120"]);
  assert.equal(document.getText(wrong.range), "reel");
  assert.match(wrong.message, /did you mean 'real'\? otherwise declare it: domain reel = open/);
  assert.equal(path.basename(wrong.code.target.fsPath), "E120.md");
  host.change(document, MODEL);
  await host.expectDiagnostics(document, []);
});

test("quick fixes change a name and declare a domain", async (t) => {
  const document = open(t, MODEL.replace(": real", ": bag of Word").replace("a.category, b", "a.categry, b"));
  const [word, attribute] = await host.expectDiagnostics(document, ["E120", "E101"]);
  const [declare] = await actionsAt(document, word.range);
  assert.equal(declare.title, "Declare domain Word = open");
  assert.equal(declare.kind.value, "quickfix");
  assert.equal(declare.diagnostics[0].message, word.message);
  const [change] = await actionsAt(document, attribute.range);
  assert.equal(change.title, "Change to 'category'");
  assert.equal(change.isPreferred, true);
  apply(change);
  await host.expectDiagnostics(document, ["E120"]);
  apply(declare);
  await host.expectDiagnostics(document, []);
  assert.equal(document.getText(), MODEL.replace("\n\n", "\ndomain Word = open\n\n").replace(": real", ": bag of Word"));
});

test("the fixes on saving correct the case", async (t) => {
  const document = open(t, MODEL.replace("Link(a, b)", "link(a, b)"));
  const [wrong] = await host.expectDiagnostics(document, ["E102"]);
  const kind = host.vscode.CodeActionKind.SourceFixAll;
  const [action, ...others] = await actionsAt(document, wrong.range, kind);
  assert.deepEqual(others, []);
  apply(action);
  assert.equal(document.getText(), MODEL);
});

test("completion", async (t) => {
  const document = open(t, MODEL);
  const context = { triggerKind: 1, triggerCharacter: "." };
  const place = document.at("b.|category");
  const found = await host.provide("CompletionItemProvider", "provideCompletionItems", document, place, context);
  const items = Array.isArray(found) ? found : found.items;
  assert.deepEqual(items.map((item) => item.label.label ?? item.label), ["category", "length"]);
});

test("hover", async (t) => {
  const document = open(t, MODEL);
  const found = await host.provide("HoverProvider", "provideHover", document, document.at("template p|air"));
  const text = found.contents.map((one) => one.value).join();
  assert.match(text, /For every a \(Page\) and b \(Page\) where `Link\(a, b\)`: a weight for each joint state/);
});

test("rename", async (t) => {
  const document = open(t, MODEL);
  const edit = await host.provide("RenameProvider", "provideRenameEdits", document, document.at("relation Li|nk"), "Cites");
  host.applyWorkspaceEdit(edit);
  assert.equal(document.getText(), MODEL.replaceAll("Link", "Cites"));
  const place = document.at("template p|air");
  await assert.rejects(host.provide("RenameProvider", "provideRenameEdits", document, place, "prior"), /'prior' is already used/);
});

test("formatting", async (t) => {
  const document = open(t, MODEL.replace("    length           :", "length:"));
  const options = { tabSize: 4, insertSpaces: true };
  const edits = await host.provide("DocumentFormattingEditProvider", "provideDocumentFormattingEdits", document, options);
  host.edit(document, edits);
  assert.equal(document.getText(), MODEL);
});

test("the client restarts after changes of the setting", async (t) => {
  const document = open(t, MODEL.replace(": real", ": reel"));
  await host.expectDiagnostics(document, ["E120"]);
  host.messages = [];
  host.settings["relcrf.command"] = ["/nowhere/relcrf"];
  host.answers.showErrorMessage = ["Open the setting"];
  await host.configure("relcrf.command");
  await setImmediate();
  const [[, message], opened, ...others] = host.messages;
  assert.match(message, /^relcrf: the language server '\/nowhere\/relcrf lsp' cannot be started/);
  assert.deepEqual(opened, ["executeCommand", "workbench.action.openSettings", "relcrf.command"]);
  assert.deepEqual(others, []);
  host.settings["relcrf.command"] = COMMAND;
  host.diagnostics.clear();
  await Promise.all([host.commands["relcrf.restart"](), host.commands["relcrf.restart"]()]);
  await host.expectDiagnostics(document, ["E120"]);
  host.change(document, MODEL);
  await host.expectDiagnostics(document, []);
});

/** Run the task that a command started; return its output. */
async function finish(task) {
  const { code, output } = await host.run(task);
  assert.equal(code, 0, output);
  return output;
}

test("check, plan, train and explain run in tasks", async (t) => {
  const document = open(t, MODEL);
  const { uri } = document;
  const data = path.join(host.root, "the data");
  const run = (name) => host.commands[`relcrf.${name}`](uri);
  const argumentsOf = (task) => task.execution.args.slice(COMMAND.length - 1);

  // The model of the editor is saved and checked, without tables because none are selected.
  host.change(document, `${MODEL}# changed\n`);
  const checking = await host.commands["relcrf.check"]();
  assert.equal(checking.execution.process, COMMAND[0]);
  assert.deepEqual(argumentsOf(checking), ["check", uri.fsPath]);
  assert.equal(fs.readFileSync(uri.fsPath, "utf8"), `${MODEL}# changed\n`);

  // Without a run, nothing is explained; if the dialog is cancelled, no tables are selected.
  assert.equal(await run("explain"), undefined);
  assert.match(host.messages.at(-1)[1], /there is no run folder .* Train the model first/);
  assert.equal(await run("plan"), undefined);
  assert.equal(host.messages.at(-1)[0], "showOpenDialog");
  assert.equal(host.statusItems[0].text, "No tables");

  host.answers.showOpenDialog = [[host.vscode.Uri.file(data)]];
  assert.deepEqual(argumentsOf(await run("plan")), ["plan", uri.fsPath, "--data", data]);
  assert.equal(host.statusItems[0].text, "the data");

  // The tables are remembered.
  const checkingData = await run("check");
  assert.deepEqual(argumentsOf(checkingData), ["check", uri.fsPath, "--data", data]);
  await finish(checkingData);

  await finish(await run("train"));
  const folder = path.join(host.root, "runs", "a model");
  assert.ok(fs.existsSync(path.join(folder, "run.json")));
  assert.equal(await run("train"), undefined);
  assert.deepEqual(host.messages.at(-1).slice(1), ["Replace the run folder runs/a model?", { modal: true }, "Replace"]);
  host.answers.showWarningMessage = ["Replace"];
  assert.deepEqual(argumentsOf(await run("train")), ["train", uri.fsPath, "--data", data, "--out", folder, "--force"]);

  host.answers.showInputBox = ["Page/p5"];
  assert.match(await finish(await run("explain")), /Page\(p5\)\.category is (course|faculty)/);
  assert.equal(await run("explain"), undefined);
  assert.equal(host.messages.at(-1)[1].value, "Page/p5");
});

test("commands need a saved model", async () => {
  assert.equal(await host.commands["relcrf.check"](host.vscode.Uri.parse("untitled:Untitled-1")), undefined);
  assert.deepEqual(host.messages.at(-1), ["showErrorMessage", "relcrf: open a model, or save it as a .rcrf file, first."]);
});
