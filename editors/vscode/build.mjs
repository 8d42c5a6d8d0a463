// Bundles the extension and the packages that it uses into dist/extension.js, and their licences into dist/licences.txt.

import { build } from "esbuild";
import { readdir, readFile, writeFile } from "node:fs/promises";

const { metafile } = await build({
  entryPoints: ["src/extension.js"],
  outfile: "dist/extension.js",
  bundle: true,
  minify: true,
  metafile: true,
  platform: "node",
  target: "node20",
  external: ["vscode"],
  // The ES modules of some packages cannot be bundled with their other modules; `main` selects the CommonJS modules.
  mainFields: ["main"],
  logLevel: "warning",
});

const folders = new Set(Object.keys(metafile.inputs).flatMap((path) => path.match(/^.*node_modules\/(@[^/]+\/)?[^/]+/)?.[0] ?? []));
const notices = [];
for (const folder of [...folders].sort()) {
  const licence = (await readdir(folder)).find((name) => /^licen[cs]e/i.test(name));
  if (licence === undefined) {
    throw new Error(`${folder} has no licence`);
  }
  const { name, version } = JSON.parse(await readFile(`${folder}/package.json`, "utf8"));
  notices.push(`${name} ${version}\n\n${(await readFile(`${folder}/${licence}`, "utf8")).trim()}\n`);
}
await writeFile("dist/licences.txt", notices.join(`\n${"-".repeat(80)}\n\n`));
