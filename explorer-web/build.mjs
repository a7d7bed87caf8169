// Builds the front end into the Python package: one ES module and one style sheet, the same bytes for the same sources.
import { build } from "esbuild";

await build({
  entryPoints: { explorer: "src/index.tsx", "explorer-style": "src/style.css" },
  outdir: "../src/regard/explorer/static",
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022"],
  charset: "utf8",
  legalComments: "none",
  jsx: "automatic",
  jsxImportSource: "preact",
  logLevel: "info",
});
