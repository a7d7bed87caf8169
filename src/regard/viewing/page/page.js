
"use strict";
(() => {
  const at = (id) => document.getElementById(id);
  const data = JSON.parse(at("data").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const MEAN = -1;
  const MOST_CELLS = 20000; // above, the map is a canvas without words
  const MOST_NUMBERED = 24;

  const view = { layer: 0, head: MEAN, query: null, key: null, pinned: false };
  let layer, weights, keyWords, queryWords, cells, keyHeads, queryHeads, marked;

  // ---- numbers and colours ----

  // A weight of null is masked; in the mean of heads it counts as 0 unless all heads mask it.
  function meanOf(heads) {
    return heads[0].map((row, q) => row.map((_, k) => {
      const own = heads.map((head) => head[q][k]);
      return own.every((weight) => weight === null) ? null : own.reduce((sum, weight) => sum + weight, 0) / own.length;
    }));
  }

  const inShares = () => layer.scale[0] >= 0 && layer.scale[1] <= 1;

  function said(weight) {
    if (weight === null) return "masked";
    if (!inShares()) return weight.toPrecision(3);
    const percent = 100 * weight;
    return (percent >= 9.5 || percent === 0 ? percent.toFixed(0) : percent.toFixed(1)) + "%";
  }

  function shareOf(weight) {
    const [low, high] = layer.scale;
    return Math.min(Math.max((weight - low) / (high - low), 0), 1);
  }

  function mix(share) {
    const shades = data.shades[dark.matches ? "dark" : "light"];
    const place = share * (shades.length - 1);
    const left = Math.min(Math.floor(place), shades.length - 2);
    return [1, 3, 5].map((i) => {
      const [a, b] = [shades[left], shades[left + 1]].map((shade) => parseInt(shade.slice(i, i + 2), 16));
      return Math.round(a + (place - left) * (b - a));
    });
  }

  const bright = (colour) => colour.map((part) => {
    const x = part / 255;
    return x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
  }).reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0);

  function shade(element, weight) {
    const colour = mix(shareOf(weight));
    element.style.backgroundColor = `rgb(${colour.join(" ")})`;
    element.style.color = bright(colour) > 0.184 ? "#080b10" : "#ffffff";
  }

  // ---- text: always text, never markup; what cannot be seen is written out ----

  function visible(text) {
    const hidden = /(?![\u200c\u200d])[\p{C}\p{Zl}\p{Zp}]/gu;
    return text.replace(hidden, (c) => "\\u" + c.codePointAt(0).toString(16).padStart(4, "0"));
  }

  function make(name, parent, text = "", kind = "") {
    const element = document.createElement(name);
    if (kind) element.className = kind;
    if (text) element.textContent = visible(text);
    parent.append(element);
    return element;
  }

  // ---- the two sentences ----

  function sentence(list, words, which) {
    list.replaceChildren();
    list.classList.toggle("many", words.length > 40);
    return words.map((text, place) => {
      const button = make("button", make("li", list), "", "word");
      button.type = "button";
      button.tabIndex = place ? -1 : 0;
      make("span", button, text, "text");
      const share = make("span", button, "", "share");
      const choose = () => { if (!view.pinned) choosing(which, place); };
      button.addEventListener("pointerenter", choose);
      button.addEventListener("pointerleave", clear);
      button.addEventListener("focus", () => choosing(which, place));
      button.addEventListener("blur", clear);
      button.addEventListener("click", () => pin(which, place));
      button.addEventListener("keydown", (event) => step(event, which, place));
      return { button, share, text };
    });
  }

  function step(event, which, place) {
    const words = which === "query" ? queryWords : keyWords;
    const turned = window.getComputedStyle(words[0].button).direction === "rtl" ? -1 : 1;
    const to = { ArrowRight: place + turned, ArrowLeft: place - turned, Home: 0, End: words.length - 1 }[event.key];
    if (event.key === "Escape") { view.pinned = false; clear(); }
    if (to === undefined || !words[to]) return;
    event.preventDefault();
    view.pinned = false;
    words.forEach((word, i) => { word.button.tabIndex = i === to ? 0 : -1; });
    words[to].button.focus();
  }

  function choosing(which, place) {
    view.query = which === "query" ? place : null;
    view.key = which === "key" ? place : null;
    show();
  }

  function pin(which, place) {
    view.pinned = !(view.pinned && view[which] === place);
    choosing(which, place);
  }

  function clear() {
    if (view.pinned) return;
    view.query = view.key = null;
    show();
  }

  // ---- what is chosen, shown everywhere ----

  // weightOf gives undefined where nothing is chosen and null where the key is masked.
  function paintWords(words, weightOf, chosen) {
    words.forEach(({ button, share }, place) => {
      const weight = weightOf(place);
      button.classList.toggle("chosen", place === chosen);
      button.setAttribute("aria-pressed", String(view.pinned && place === chosen));
      share.textContent = weight === undefined ? "" : said(weight);
      if (weight === undefined || weight === null) button.style.backgroundColor = button.style.color = "";
      else shade(button, weight);
    });
  }

  function show() {
    const { query, key } = view;
    const only = query !== null && key !== null;
    paintWords(keyWords, (k) => (query === null ? undefined : weights[query][k]), key);
    paintWords(queryWords, (q) => (key === null || only ? undefined : weights[q][key]), query);
    marked.forEach((element) => element.classList.remove("chosen"));
    marked = [queryHeads[query], keyHeads[key], only && cells[query] ? cells[query][key] : null].filter(Boolean);
    marked.forEach((element) => element.classList.add("chosen"));
    at("readout").textContent = sentenceOf(query, key);
  }

  function sentenceOf(query, key) {
    const quoted = (text) => `“\u2068${visible(text.slice(0, 80))}\u2069”`;
    const { queries, keys } = layer;
    if (query === null && key === null) return "Point at a word, or step through the words with the arrow keys. Enter holds it, Escape lets go.";
    if (query !== null && key !== null) return `${quoted(queries[query])} looks at ${quoted(keys[key])}: ${said(weights[query][key])}`;
    const [words, row] = query !== null ? [keys, weights[query]] : [queries, weights.map((r) => r[key])];
    const best = row.map((weight, i) => [weight, i]).filter(([weight]) => weight !== null).sort((a, b) => b[0] - a[0] || a[1] - b[1]).slice(0, 3);
    const list = best.map(([weight, i]) => `${quoted(words[i])} ${said(weight)}`).join(", ");
    return query !== null ? `${quoted(queries[query])} looks most at ${list}` : `${quoted(keys[key])} is looked at most by ${list}`;
  }

  // ---- the map ----

  function table(sheet) {
    const grid = make("table", sheet, "", layer.keys.length > MOST_NUMBERED ? "close" : "");
    make("caption", grid, "Weights: one row for each word that looks, one column for each word looked at.");
    const head = make("tr", make("thead", grid));
    make("td", head);
    keyHeads = layer.keys.map((text) => {
      const column = make("th", head);
      column.scope = "col";
      make("span", column, text.slice(0, 200));
      return column;
    });
    const body = make("tbody", grid);
    cells = weights.map((row, q) => {
      const line = make("tr", body);
      queryHeads[q] = make("th", line, layer.queries[q].slice(0, 200));
      queryHeads[q].scope = "row";
      return row.map((weight, k) => {
        const masked = weight === null;
        const kind = masked ? "masked" : weight < 0.095 && inShares() ? "quiet" : "";
        const cell = make("td", line, masked ? "" : said(weight).replace("%", ""), kind);
        if (!masked) shade(cell, weight);
        if (kind) cell.style.color = "";
        cell.addEventListener("pointerenter", () => { if (!view.pinned) cross(q, k); });
        return cell;
      });
    });
  }

  function cross(query, key) {
    view.query = query;
    view.key = key;
    show();
  }

  function canvas(sheet) {
    const [rows, columns] = [weights.length, weights[0].length];
    const picture = make("canvas", sheet);
    [picture.width, picture.height] = [columns, rows];
    picture.style.width = `${Math.max(columns, 900)}px`;
    const brush = picture.getContext("2d");
    const dots = brush.createImageData(columns, rows);
    weights.forEach((row, q) => row.forEach((weight, k) => {
      if (weight !== null) dots.data.set([...mix(shareOf(weight)), 255], 4 * (q * columns + k));
    }));
    brush.putImageData(dots, 0, 0);
    picture.addEventListener("pointermove", (event) => {
      const box = picture.getBoundingClientRect();
      const place = (offset, size, count) => Math.min(Math.floor((offset / size) * count), count - 1);
      if (!view.pinned) cross(place(event.clientY - box.top, box.height, rows), place(event.clientX - box.left, box.width, columns));
    });
  }

  function map() {
    const sheet = at("map");
    sheet.replaceChildren();
    [cells, keyHeads, queryHeads, marked] = [[], [], [], []];
    (weights.length * weights[0].length > MOST_CELLS ? canvas : table)(sheet);
    const stops = [0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1].map((share) => `rgb(${mix(share).join(" ")})`);
    at("masked").hidden = at("masked-name").hidden = weights.every((row) => row.every((weight) => weight !== null));
    at("bar").style.backgroundImage = `linear-gradient(to right, ${stops.join(", ")})`;
    [at("low").textContent, at("high").textContent] = layer.scale.map(inShares() ? (end) => `${+(100 * end).toPrecision(3)}%` : String);
  }

  // ---- pickers ----

  function options(picker, names, chosen) {
    picker.replaceChildren();
    names.forEach(([value, text]) => { make("option", picker, text).value = String(value); });
    picker.value = String(chosen);
  }

  function pickLayer(place) {
    view.layer = place;
    layer = data.layers[place];
    const heads = layer.numbers.map((number, head) => [head, `head ${number}`]);
    if (heads.length === 1) view.head = 0;
    else if (view.head >= heads.length) view.head = MEAN;
    options(at("head"), heads.length > 1 ? [[MEAN, "mean of heads"], ...heads] : heads, view.head);
    const same = JSON.stringify(layer.queries) === JSON.stringify(layer.keys);
    at("keys-name").textContent = same ? "Looked at: the sentence itself" : "Looked at: the source";
    at("queries-name").textContent = same ? "Looking: the same sentence" : "Looking: the translation";
    view.query = view.key = null;
    view.pinned = false;
    keyWords = sentence(at("keys"), layer.keys, "key");
    queryWords = sentence(at("queries"), layer.queries, "query");
    pickHead(view.head);
  }

  function pickHead(head) {
    view.head = head;
    weights = head === MEAN ? meanOf(layer.heads) : layer.heads[head];
    map();
    show();
  }

  function download() {
    const { title, layers } = data;
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([JSON.stringify({ title, layers }, null, 1)], { type: "application/json" }));
    link.download = "attention.json";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  at("title").textContent = at("title").title = data.title;
  options(at("layer"), data.layers.map(({ name }, place) => [place, name]), 0);
  at("layer").addEventListener("change", (event) => pickLayer(Number(event.target.value)));
  at("head").addEventListener("change", (event) => pickHead(Number(event.target.value)));
  at("download").addEventListener("click", download);
  at("map").addEventListener("pointerleave", clear);
  dark.addEventListener("change", () => { map(); show(); });
  at("layer").value = String(data.first);
  pickLayer(data.first);
})();
