// Fails where modules of the front end import each other in a circle; an import of types counts as well.
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";

const paths = readdirSync("src", { recursive: true }).map((name) => join("src", name));
const modules = new Map(paths.filter((path) => /\.tsx?$/.test(path)).map((path) => [path, imports(path)]));
const finished = new Set();
for (const path of modules.keys()) visit(path, []);

function imports(path) {
  const names = [...readFileSync(path, "utf8").matchAll(/\bfrom "(\.[^"]+)"/g)].map(([, name]) => name);
  const stems = names.map((name) => normalize(join(dirname(path), name)));
  return stems.map((stem) => [`${stem}.ts`, `${stem}.tsx`].find((file) => paths.includes(file))).filter(Boolean);
}

function visit(path, trail) {
  if (trail.includes(path)) {
    console.error(`import circle: ${[...trail.slice(trail.indexOf(path)), path].join(" > ")}`);
    process.exit(1);
  }
  if (finished.has(path)) return;
  for (const imported of modules.get(path)) visit(imported, [...trail, path]);
  finished.add(path);
}
