// Runs a page's own script over a stand-in document, plays a reader, prints what was to be seen.
"use strict";
const fs = require("fs");
const vm = require("vm");

class Element {
  constructor(name) {
    Object.assign(this, { name, children: [], style: {}, className: "", own: "", heard: {}, attributes: {}, value: "" });
    this.classList = { toggle() {}, add() {}, remove() {} };
  }
  append(child) { this.children.push(child); }
  replaceChildren() { this.children = []; this.own = ""; }
  set textContent(text) { this.own = String(text); }
  get textContent() { return this.own + this.children.map((child) => child.textContent).join(""); }
  setAttribute(name, value) { this.attributes[name] = value; }
  addEventListener(kind, act) { this.heard[kind] = act; }
  play(kind, event = {}) { this.heard[kind]({ target: this, preventDefault() {}, ...event }); }
  focus() { focused = this; this.play("focus"); }
  click() {}
  all(name) { return this.children.flatMap((child) => [...(child.name === name ? [child] : []), ...child.all(name)]); }
}

const html = fs.readFileSync(process.argv[2], "utf-8");
const scripts = [...html.matchAll(/<script[^>]*>([\s\S]*?)<\/script>/g)].map((match) => match[1]);
const elements = {};
for (const [, id] of html.matchAll(/ id="([a-z-]+)"/g)) elements[id] = new Element("div");
elements.data.textContent = scripts[0];
let focused = null;
let saved = "";
const window = {
  matchMedia: () => ({ matches: false, addEventListener() {} }),
  getComputedStyle: () => ({ direction: "ltr" }),
};
vm.runInNewContext(scripts[1], {
  window,
  document: { getElementById: (id) => elements[id], createElement: (name) => new Element(name) },
  URL: { createObjectURL: () => "blob:", revokeObjectURL() {} },
  Blob: class { constructor(parts) { saved = parts.join(""); } },
  setTimeout() {},
});

const spans = (id, kind) => elements[id].all("span").filter((span) => span.className === kind);
const look = () => ({
  keys: spans("keys", "text").map((span) => span.textContent),
  queries: spans("queries", "text").map((span) => span.textContent),
  shares: spans("keys", "share").map((span) => span.textContent),
  shades: elements.keys.all("button").map((button) => button.style.backgroundColor),
  heads: elements.head.all("option").map((option) => option.textContent),
  kinds: elements.map.all("td").slice(1).map((cell) => cell.className),
  note: !elements["masked-name"].hidden,
  cells: elements.map.all("td").slice(1).map((cell) => cell.textContent),
  readout: elements.readout.textContent,
  focused: focused && focused.all("span")[0].textContent,
});
const seen = { opened: look() };
const first = () => elements.queries.all("button")[0];
first().play("pointerenter");
seen.hovered = look();
first().play("pointerleave");
seen.left = look();
elements.head.value = "0";
elements.head.play("change");
seen["head 0"] = look();
first().play("keydown", { key: "ArrowRight" });
seen.arrow = look();
elements.layer.value = "0";
elements.layer.play("change");
seen.self = look();
first().play("pointerenter");
seen.masked = look();
elements.download.play("click");
seen.download = saved;
console.log(JSON.stringify(seen));
