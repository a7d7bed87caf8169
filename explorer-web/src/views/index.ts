// The views, in the order of their tabs.

import type { FunctionComponent } from "preact";
import type { App } from "../app";
import { Change } from "./change";
import { Heads } from "./heads";
import { Map } from "./map";
import { Numbers } from "./numbers";
import { Translate } from "./translate";

export interface View {
  name: string;
  title: string;
  when: (app: App) => boolean;
  Show: FunctionComponent;
}

/** Whether there is a translation, and an attention between it and its source. */
const translated = ({ header }: App) => Boolean(header?.translation && header.attentions.some((one) => one.kind === "cross"));

export const VIEWS: View[] = [
  { name: "translate", title: "Translate", when: (app) => app.live || translated(app), Show: Translate },
  { name: "heads", title: "Heads", when: (app) => Boolean(app.header?.attentions.length), Show: Heads },
  { name: "map", title: "Map", when: (app) => Boolean(app.header?.attentions.length), Show: Map },
  { name: "numbers", title: "Numbers", when: (app) => app.live && Boolean(app.header?.translation), Show: Numbers },
  { name: "change", title: "Change", when: (app) => app.live && Boolean(app.header?.translation), Show: Change },
];
