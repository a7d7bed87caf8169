// The views, in the order of their tabs.

import type { FunctionComponent } from "preact";
import type { App } from "../app";
import { Change } from "./change";
import { Effects } from "./effects";
import { Heads } from "./heads";
import { Map } from "./map";
import { Numbers } from "./numbers";
import { Prompted } from "./prompt";
import { Translate } from "./translate";

export interface View {
  name: string;
  title: string;
  when: (app: App) => boolean;
  Show: FunctionComponent;
}

/** Whether there is a translation, and an attention between it and its source. */
const translated = ({ header }: App) => Boolean(header?.translation && header.attentions.some((one) => one.kind === "cross"));

/** Whether the model can be run again. */
const runs = (app: App) => app.live && Boolean(app.header?.translation ?? app.header?.prompt);

export const VIEWS: View[] = [
  { name: "prompt", title: "Prompt", when: (app) => app.prompts || Boolean(app.header?.prompt), Show: Prompted },
  { name: "translate", title: "Translate", when: (app) => (app.models.length > 0 && !app.prompts) || translated(app), Show: Translate },
  { name: "heads", title: "Heads", when: (app) => Boolean(app.header?.attentions.length), Show: Heads },
  { name: "map", title: "Map", when: (app) => Boolean(app.header?.attentions.length), Show: Map },
  { name: "numbers", title: "Numbers", when: runs, Show: Numbers },
  { name: "change", title: "Change", when: runs, Show: Change },
  { name: "effects", title: "Effects", when: (app) => app.live && Boolean(app.header?.prompt), Show: Effects },
];
