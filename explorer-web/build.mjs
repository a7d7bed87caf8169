// Builds the front end into the Python package: one ES module and one style sheet, the same bytes for the same sources.
// The module begins with the licences of the packages that are compiled into it, so that every page carries them.
import { readFileSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const STATIC = "../src/regard/explorer/static";

const settings = {
  entryPoints: { explorer: "src/index.tsx", "explorer-style": "src/style.css" },
  outdir: STATIC,
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022"],
  charset: "utf8",
  legalComments: "none", // the notices below are complete; most packages have no such comment
  jsx: "automatic",
  jsxImportSource: "preact",
  logLevel: "info",
};

const { metafile } = await build({ ...settings, metafile: true, write: false, logLevel: "error" });
const notices = notice(packages(metafile));
writeFileSync(`${STATIC}/third-party.txt`, notices);
await build({ ...settings, banner: { js: `/*! ${notices}*/` } });

// The folders of the packages whose code is in the module.
function packages({ outputs }) {
  const inputs = Object.values(outputs).flatMap((output) => Object.keys(output.inputs));
  const folders = inputs.map((path) => /.*node_modules\/(@[^/]+\/)?[^/]+/.exec(path)?.[0]);
  return [...new Set(folders.filter(Boolean))].sort();
}

// The names and versions of packages, above the text of their licence.
function notice(folders) {
  const named = {};
  for (const folder of folders) (named[readFileSync(`${folder}/LICENSE`, "utf8").trim()] ??= []).push(folder);
  const blocks = Object.entries(named).map(([licence, those]) => `${those.map(title).join(", ")}\n\n${licence}\n`);
  return blocks.join("\n");
}

function title(folder) {
  const { name, version } = JSON.parse(readFileSync(`${folder}/package.json`, "utf8"));
  return `${name} ${version}`;
}
