// The entry: `render({ model, el })` draws the explorer into an element, of a page or of a notebook (anywidget).

import { useSignalEffect } from "@preact/signals";
import { render as draw } from "preact";
import { useEffect, useState } from "preact/hooks";
import { App, Shared, useApp } from "./app";
import { Bundle } from "./contract";
import { Ask, kernel } from "./server";
import { VIEWS } from "./views";

interface Model {
  get(name: string): unknown;
  on?(event: string, call: (...content: never[]) => void): void;
  send?(content: unknown): void;
}

/**
 * Args:
 *   model: `get("bundle")` is the data as bytes, or null; `get("models")` the names of the server's models, or null;
 *     `get("languages")` those that read prompts; `get("runs")` whether the kernel of a notebook runs them, which answers by `send` and `on`;
 *     `get("trains")` whether one of them may get checkpoints; `get("pairs")` whether there are gold links; `get("scene")` the address of a server's scene, or null; `get("lasting")` whether the page's address may hold the state.
 *   el: the element to draw into.
 * Returns: a function that takes the explorer out again.
 */
export function render({ model, el }: { model: Model; el: HTMLElement }): () => void {
  const names = (what: string) => (model.get(what) as string[] | null) ?? [];
  const server: Ask = model.get("runs") ? kernel(model as never) : (path, options) => fetch(path, options);
  const app = new App(names("models"), names("languages"), Boolean(model.get("lasting")), Boolean(model.get("trains")), Boolean(model.get("pairs")), server);
  const take = () => {
    const bundleBytes = model.get("bundle") as DataView | Uint8Array | null;
    if (bundleBytes?.byteLength) app.show(Bundle.parse(new Uint8Array(bundleBytes.buffer, bundleBytes.byteOffset, bundleBytes.byteLength)));
  };
  take();
  const scene = model.get("scene") as string | null;
  if (scene) app.open(scene);
  model.on?.("change:bundle", take);
  el.classList.add("regard");
  const media = matchMedia("(prefers-color-scheme: dark)");
  const shade = () => (app.theme.value = media.matches ? "dark" : "light");
  shade();
  media.addEventListener("change", shade);
  const unfollow = app.address.follow();
  draw(
    <Shared.Provider value={app}>
      <Explorer />
    </Shared.Provider>,
    el,
  );
  return () => {
    media.removeEventListener("change", shade);
    unfollow();
    draw(null, el);
  };
}

export default { render };

function Explorer() {
  const app = useApp();
  const source = app.scene.value;
  const [id] = useState(() => `regard-${Math.random().toString(36).slice(2)}`); // several explorers can be in one notebook
  const views = VIEWS.filter((view) => view.when(app));
  const startView = app.prompts ? "prompt" : source && !source.header.translation ? "heads" : "translate"; // where no view is chosen
  const view = [app.view.value, startView].map((name) => views.find((one) => one.name === name)).find(Boolean) ?? views[0];
  useEffect(() => {
    if (app.live) app.again();
  }, []);
  const waits = Boolean(app.busy.value);
  useEffect(() => {
    if (!waits || !app.live) return;
    const over = new AbortController();
    void app.watchProgress(over.signal);
    return () => over.abort();
  }, [waits]);
  useSignalEffect(() => {
    if (app.address.lasting) document.title = app.header ? `${app.header.title} · Regard` : "Regard";
  });
  if (!view)
    return app.error.value ? (
      <p class="error" role="alert">
        {app.error.value}
      </p>
    ) : (
      <p class="busy" role="status">
        {app.busy.value ? `${app.busy.value} …` : "There is nothing to show."}
      </p>
    );
  const step = (event: KeyboardEvent, place: number) => {
    const to = { ArrowRight: place + 1, ArrowLeft: place - 1 }[event.key];
    if (to === undefined || !views[to]) return;
    app.view.value = views[to].name;
    (event.currentTarget as HTMLElement).parentElement?.querySelectorAll("button")[to].focus();
  };
  return (
    <>
      <header>
        <h1>{source ? source.header.title : "Regard"}</h1>
        <div role="tablist" aria-label="Views">
          {views.map((one, place) => (
            <button
              key={one.name}
              type="button"
              role="tab"
              id={`${id}-${one.name}`}
              aria-selected={one === view}
              aria-controls={id}
              tabIndex={one === view ? 0 : -1}
              onClick={() => (app.view.value = one.name)}
              onKeyDown={(event) => step(event, place)}
            >
              {one.title}
            </button>
          ))}
        </div>
      </header>
      <main>
        {app.error.value && (
          <p class="error" role="alert">
            {app.error.value}
          </p>
        )}
        {app.busy.value && (
          <p class="busy" role="status">
            {app.progress.value || app.busy.value} …
          </p>
        )}
        <div id={id} role="tabpanel" aria-labelledby={`${id}-${view.name}`}>
          <view.Show />
        </div>
      </main>
      {source && source.header.run !== null && (
        <footer>
          <button type="button" onClick={() => app.saveFile()}>
            Save as a file
          </button>
        </footer>
      )}
      <p class="hidden said" aria-live="polite">
        {app.announcement.value}
      </p>
    </>
  );
}

/** A page of ours has an element with this id: a file with its data, or the server's. */
function boot(): void {
  const el = document.getElementById("regard-explorer");
  if (!el) return;
  const data = document.getElementById("regard-bundle");
  const bundle = data ? Uint8Array.from(atob(data.textContent!.trim()), (c) => c.charCodeAt(0)) : null;
  const models = el.dataset.models ? (JSON.parse(el.dataset.models) as string[]) : null;
  const lasting = location.protocol !== "about:"; // a frame in a notebook has no address of its own
  const languages = el.dataset.languages ? (JSON.parse(el.dataset.languages) as string[]) : null;
  const { scene, trains, pairs } = el.dataset;
  const values: Record<string, unknown> = { bundle, models, languages, scene, trains, pairs, lasting };
  render({ model: { get: (name) => values[name] ?? null }, el });
  el.dataset.ready = "yes";
}

boot();
