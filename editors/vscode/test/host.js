// A host of the extension without VS Code. It implements the parts of the module `vscode` that the extension and the language
// client use: documents, providers, commands, dialogs with prepared answers, and tasks, which it runs as processes. The data
// types (positions, ranges, edits, ...) are those of jest-mock-vscode, which contains the code of VS Code.

"use strict";

const { spawn } = require("node:child_process");
const fs = require("node:fs");
const Module = require("node:module");
const { createVSCodeMock } = require("jest-mock-vscode");

// The host reports a call of a function that it does not implement.
const notImplemented = () => {
  throw new Error("the test host does not implement this function of vscode");
};
const types = createVSCodeMock({ fn: (implementation = notImplemented) => implementation });

const TIMEOUT = 120_000;

class Hover {
  constructor(contents, range) {
    Object.assign(this, { contents: Array.isArray(contents) ? contents : [contents], range });
  }
}

class CancellationTokenSource {
  constructor() {
    const emitter = new types.EventEmitter();
    this.token = { isCancellationRequested: false, onCancellationRequested: emitter.event };
    this.emitter = emitter;
  }
  cancel() {
    this.token.isCancellationRequested = true;
    this.emitter.fire();
  }
  dispose() {}
}

class ProcessExecution {
  constructor(process, args, options) {
    Object.assign(this, { process, args, options });
  }
}

class Task {
  constructor(definition, scope, name, source, execution) {
    Object.assign(this, { definition, scope, name, source, execution });
  }
}

/** A document whose text the host can change. */
class Document {
  constructor(host, uri, text) {
    Object.assign(this, { host, uri, languageId: "rcrf", isDirty: false, isUntitled: false, isClosed: false, encoding: "utf8" });
    this.fileName = uri.fsPath;
    this.eol = types.EndOfLine.LF;
    this.version = 0;
    this.set(text);
  }
  set(text) {
    this.version += 1;
    this.lines = text.split("\n");
    this.lineCount = this.lines.length;
  }
  getText(range) {
    const text = this.lines.join("\n");
    return range === undefined ? text : text.slice(this.offsetAt(range.start), this.offsetAt(range.end));
  }
  lineAt(line) {
    return { text: this.lines[line.line ?? line] };
  }
  offsetAt({ line, character }) {
    const before = this.lines.slice(0, line).reduce((sum, one) => sum + one.length + 1, 0);
    return Math.min(before + Math.min(character, this.lines[line]?.length ?? 0), this.lines.join("\n").length);
  }
  positionAt(offset) {
    const before = this.lines.join("\n").slice(0, offset).split("\n");
    return new types.Position(before.length - 1, before.at(-1).length);
  }
  /** Return the position of the cursor `|` in a passage of the text. */
  at(passage) {
    const offset = this.getText().indexOf(passage.replace("|", ""));
    if (offset < 0) {
      throw new Error(`the text does not contain '${passage}'`);
    }
    return this.positionAt(offset + passage.indexOf("|"));
  }
  async save() {
    fs.writeFileSync(this.fileName, this.getText());
    this.isDirty = false;
    this.host.events.onDidSaveTextDocument.fire(this);
    return true;
  }
}

const EVENTS = [
  "onDidChangeActiveTextEditor",
  "onDidChangeTextDocument",
  "onDidChangeVisibleTextEditors",
  "onDidChangeWorkspaceFolders",
  "onDidCloseTextDocument",
  "onDidOpenTextDocument",
  "onDidSaveTextDocument",
  "onWillSaveTextDocument",
];

class Host {
  constructor(root, settings) {
    this.root = root;
    this.settings = settings;
    this.events = Object.fromEntries(EVENTS.map((name) => [name, new types.EventEmitter()]));
    this.documents = [];
    this.providers = {};
    this.commands = {};
    this.diagnostics = new Map();
    this.waiting = [];
    this.messages = [];
    this.log = [];
    // Answers to dialogs, by the name of the function: `showOpenDialog`, `showInputBox`, `showWarningMessage`, ...
    this.answers = {};
    this.configurationListeners = [];
    this.statusItems = [];
    this.vscode = this.createModule();
  }

  createModule() {
    const event = Object.fromEntries(EVENTS.map((name) => [name, this.events[name].event]));
    const ask = (name) => async (...args) => {
      this.messages.push([name, ...args]);
      return this.answers[name]?.shift();
    };
    const channel = Object.fromEntries(
      ["append", "appendLine", "clear", "debug", "dispose", "error", "hide", "info", "replace", "show", "trace", "warn"].map((name) => [
        name,
        (...texts) => this.log.push([name, ...texts.map(String)]),
      ])
    );
    const host = this;
    const folder = { uri: types.Uri.file(this.root), name: "root", index: 0 };
    const register = (name) => (selector, provider, ...rest) => {
      this.providers[name] = [...(this.providers[name] ?? []), provider];
      return { dispose: () => (this.providers[name] = this.providers[name].filter((one) => one !== provider)) };
    };
    const registrations = Object.keys(types.languages).filter((name) => name.startsWith("register"));
    return {
      ...types,
      CancellationError: class extends Error {},
      CancellationTokenSource,
      CodeActionTriggerKind: { Invoke: 1, Automatic: 2 },
      Hover,
      InlayHint: class {}, // the client derives a class from it
      ProcessExecution,
      Task,
      version: "1.107.0",
      env: { appName: "test host", language: "en", openExternal: notImplemented },
      extensions: { getExtension: () => undefined },
      commands: {
        registerCommand: (name, command) => {
          if (name in this.commands) {
            throw new Error(`the command ${name} is already registered`);
          }
          this.commands[name] = command;
          return { dispose: () => delete this.commands[name] };
        },
        executeCommand: async (name, ...args) => {
          this.messages.push(["executeCommand", name, ...args]);
          return this.commands[name]?.(...args);
        },
      },
      languages: {
        ...Object.fromEntries(registrations.map((name) => [name, register(name)])),
        createDiagnosticCollection: () => ({
          set: (uri, found) => host.publish(uri, found ?? []),
          delete: (uri) => host.publish(uri, []),
          clear: () => host.diagnostics.clear(),
          dispose: () => host.diagnostics.clear(),
        }),
        createLanguageStatusItem: (id, selector) => {
          const item = { id, selector, dispose() {} };
          this.statusItems.push(item);
          return item;
        },
        // As in VS Code, 0 means that the selector does not match the document.
        match: (selector, document) =>
          Number([selector].flat().some((one) => one.language === document.languageId && [undefined, document.uri.scheme].includes(one.scheme))),
      },
      tasks: { executeTask: async (task) => task },
      window: {
        ...event,
        get activeTextEditor() {
          return host.active && { document: host.active };
        },
        visibleTextEditors: [],
        tabGroups: { all: [], onDidChangeTabs: () => ({ dispose() {} }) },
        createOutputChannel: () => ({ ...channel, name: "relcrf", logLevel: types.LogLevel.Info, onDidChangeLogLevel: () => ({ dispose() {} }) }),
        showErrorMessage: ask("showErrorMessage"),
        showInformationMessage: ask("showInformationMessage"),
        showInputBox: ask("showInputBox"),
        showOpenDialog: ask("showOpenDialog"),
        showWarningMessage: ask("showWarningMessage"),
      },
      workspace: {
        ...event,
        isTrusted: true,
        notebookDocuments: [],
        workspaceFolders: [folder],
        get textDocuments() {
          return host.documents;
        },
        onDidChangeConfiguration: (listener) => {
          this.configurationListeners.push(listener);
          return { dispose() {} };
        },
        asRelativePath: (path) => path.replace(`${this.root}/`, ""),
        createFileSystemWatcher: () => ({ onDidCreate() {}, onDidChange() {}, onDidDelete() {}, dispose() {} }),
        getConfiguration: (section = "") => ({
          get: (key, fallback) => this.settings[[section, key].filter(Boolean).join(".")] ?? fallback,
          inspect: () => undefined,
        }),
        getWorkspaceFolder: (uri) => (uri.fsPath.startsWith(`${this.root}/`) ? folder : undefined),
      },
    };
  }

  /** Load the extension, with the host as the module `vscode`. */
  load(path) {
    const load = Module._load;
    Module._load = (request, ...rest) => (request === "vscode" ? this.vscode : load(request, ...rest));
    try {
      this.extension = require(path);
    } finally {
      Module._load = load;
    }
    const stored = new Map();
    const workspaceState = { get: (key) => stored.get(key), update: async (key, value) => void stored.set(key, value) };
    this.context = { subscriptions: [], workspaceState };
    return this.extension.activate(this.context);
  }

  async unload() {
    await this.extension.deactivate();
    for (const item of this.context.subscriptions) {
      item.dispose();
    }
  }

  // Documents

  open(name, text) {
    const uri = types.Uri.file(`${this.root}/${name}`);
    const document = new Document(this, uri, text);
    fs.writeFileSync(uri.fsPath, text);
    this.documents.push(document);
    this.active = document;
    this.events.onDidOpenTextDocument.fire(document);
    return document;
  }

  close(document) {
    this.documents = this.documents.filter((one) => one !== document);
    document.isClosed = true;
    this.events.onDidCloseTextDocument.fire(document);
  }

  change(document, text) {
    document.set(text);
    document.isDirty = true;
    const contentChanges = [{ range: new types.Range(0, 0, 0, 0), rangeOffset: 0, rangeLength: 0, text }];
    this.events.onDidChangeTextDocument.fire({ document, contentChanges, reason: undefined });
  }

  /** Apply edits of one document, as an editor does. */
  edit(document, edits) {
    let text = document.getText();
    for (const { range, newText } of [...edits].sort((a, b) => document.offsetAt(b.range.start) - document.offsetAt(a.range.start))) {
      text = text.slice(0, document.offsetAt(range.start)) + newText + text.slice(document.offsetAt(range.end));
    }
    this.change(document, text);
  }

  applyWorkspaceEdit(edit) {
    for (const [uri, edits] of edit.entries()) {
      this.edit(this.documents.find((one) => one.uri.toString() === uri.toString()), edits);
    }
  }

  publish(uri, found) {
    this.diagnostics.set(uri.toString(), found);
    this.waiting = this.waiting.filter((isDone) => !isDone());
  }

  /** Wait until the diagnostics of a document have these codes, and return the diagnostics. */
  expectDiagnostics(document, codes) {
    return new Promise((resolve, reject) => {
      const current = () => this.diagnostics.get(document.uri.toString()) ?? [];
      const found = () => current().map((one) => one.code?.value ?? one.code);
      const isDone = () => {
        const isEqual = JSON.stringify(found()) === JSON.stringify(codes) && this.diagnostics.has(document.uri.toString());
        if (isEqual) {
          clearTimeout(timer);
          resolve(current());
        }
        return isEqual;
      };
      const timer = setTimeout(() => reject(new Error(`expected ${codes}, found ${found()}`)), TIMEOUT);
      if (!isDone()) {
        this.waiting.push(isDone);
      }
    });
  }

  /** Call a method of the only provider of a kind. */
  provide(kind, method, ...args) {
    const providers = this.providers[`register${kind}`] ?? [];
    if (providers.length !== 1) {
      throw new Error(`${providers.length} providers of ${kind}`);
    }
    return providers[0][method](...args, new CancellationTokenSource().token);
  }

  /** Report a change of a setting to the extension and wait until it has handled it. */
  configure(name) {
    return Promise.all(this.configurationListeners.map((listener) => listener({ affectsConfiguration: (one) => one === name })));
  }

  /** Run a task, as VS Code does after `executeTask`. */
  run({ execution: { process: program, args, options } }) {
    const child = spawn(program, args, { cwd: options.cwd });
    let output = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream.on("data", (data) => (output += data));
    }
    return new Promise((resolve, reject) => {
      child.on("error", reject).on("close", (code) => resolve({ code, output }));
    });
  }
}

module.exports = { Host };
