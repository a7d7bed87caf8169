"use strict";
const at = (id) => document.getElementById(id);
const [form, source, target, text, translation, state, key] = [
  "form", "source", "target", "text", "translation", "state", "key",
].map(at);
let languages = [];
let request = null;
let translated = "";

function option(code, name) {
  const element = document.createElement("option");
  element.value = code;
  element.textContent = name;
  return element;
}

/** Offer the targets of the source; keep the chosen one where it is among them. */
function offerTargets() {
  const chosen = target.value;
  const every = [...new Set(languages.flatMap((language) => language.targets))].sort();
  const codes = languages.find((language) => language.code === source.value)?.targets ?? every;
  const names = Object.fromEntries(languages.map(({ code, name }) => [code, name]));
  target.replaceChildren(...codes.map((code) => option(code, names[code])));
  if (codes.includes(chosen)) target.value = chosen;
}

function say(sentence, kind = "") {
  state.textContent = sentence;
  state.className = kind;
}

async function ask(path, body, signal) {
  const options = body && {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal,
  };
  const answer = await fetch(path, options);
  const content = await answer.json().catch(() => ({ error: `the server answered ${answer.status}` }));
  if (!answer.ok) throw new Error(content.error);
  return content;
}

/** The translation, with each doubtful sentence underlined. Text is never read as HTML. */
function show(content, sentences) {
  translated = content;
  translation.replaceChildren();
  let place = 0;
  for (const sentence of sentences) {
    const start = sentence.doubts.length ? content.indexOf(sentence.translation, place) : -1;
    if (start < 0 || !sentence.translation) continue;
    const mark = document.createElement("span");
    mark.className = "doubted";
    mark.title = `May be wrong: ${sentence.doubts.join(", ")}`;
    mark.textContent = sentence.translation;
    translation.append(content.slice(place, start), mark);
    place = start + sentence.translation.length;
  }
  translation.append(content.slice(place));
  at("copy").disabled = !content;
}

async function translate() {
  request?.abort();
  if (!text.value.trim()) return show("", []), say("");
  const own = (request = new AbortController());
  say("Translating…");
  const fields = { q: text.value, source: source.value, target: target.value, confidence: true };
  if (key.value) fields.api_key = key.value;
  try {
    const answer = await ask("/translate", fields, own.signal);
    show(answer.translatedText, answer.sentences);
    const doubted = answer.sentences.filter((sentence) => sentence.doubts.length).length;
    const guess = answer.detectedLanguage;
    const name = guess && languages.find(({ code }) => code === guess.language)?.name;
    const notes = [];
    if (guess) notes.push(guess.confidence ? `The text seems to be ${name}.` : `The text may be in another language; it was read as ${name}.`);
    if (doubted) notes.push(doubted === 1 ? "One sentence is doubtful: it is underlined." : `${doubted} sentences are doubtful: they are underlined.`);
    say(notes.join(" "), doubted || guess?.confidence === 0 ? "doubt" : "");
  } catch (fault) {
    if (own !== request || fault.name === "AbortError") return;
    const reason = fault instanceof TypeError ? "The server does not answer." : fault.message;
    say(reason[0].toUpperCase() + reason.slice(1), "fault");
  }
}

form.addEventListener("submit", (event) => { event.preventDefault(); translate(); });
text.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); translate(); }
});
source.addEventListener("change", offerTargets);
at("swap").addEventListener("click", () => {
  const [from, to] = [source.value, target.value];
  const back = languages.find(({ code }) => code === to)?.targets ?? [];
  if (!back.length) return say(`There is no model that translates from ${target.selectedOptions[0]?.text}.`);
  source.value = to;
  offerTargets();
  if (back.includes(from)) target.value = from;
  if (translated) { text.value = translated; show("", []); }
  translate();
});
at("copy").addEventListener("click", async () => {
  await navigator.clipboard.writeText(translated);
  say("The translation was copied.");
});

(async () => {
  try {
    const [settings, list] = await Promise.all([ask("/frontend/settings"), ask("/languages")]);
    languages = list;
    const sources = list.filter(({ targets }) => targets.length);
    source.replaceChildren(option("auto", "detect"), ...sources.map(({ code, name }) => option(code, name)));
    offerTargets();
    target.value = settings.language.target.code;
    at("key-field").hidden = !settings.keyRequired;
  } catch {
    say("The server does not answer: reload the page.", "fault");
  }
})();
