import type { Strings, View } from "../types";
import { Alignment } from "./alignment";
import { Beams } from "./beams";
import { Generate } from "./generate";
import { Head } from "./head";
import { Heads } from "./heads";
import { Intervene } from "./intervene";
import { Patches } from "./patches";
import { Predict } from "./predict";
import { RolloutView } from "./rollout";
import { Runs } from "./runs";
import { Table } from "./table";
import { Twins } from "./twins";
import "./styles/layout.css";
import "./styles/controls.css";
import "./styles/tokens.css";
import "./styles/tables.css";
import "./styles/heads.css";
import "./styles/lines.css";
import "./styles/grid.css";
import "./styles/decoding.css";
import "./styles/features.css";
import "./styles/patches.css";
import "./styles/runs.css";
import "./styles/narrow.css";
import "./styles/wide.css";

/** A view; `needs` is what the trace or its model must have, `source` what the studio is started with to have it. */
function view(id: string, title: keyof Strings, component: View["component"], needs?: string, source = "MODEL"): View {
  if (!needs) return { id, title: (s) => s[title], needs: [], component };
  const command = `softlook studio ${source}`;
  const text = `${title}.needs` as keyof Strings;
  return { id, title: (s) => s[title], needs: [needs], component, missing: (s) => ({ text: s[text], command }) };
}

/** The views of part two, in order. */
export const views: View[] = [
  view("heads", "v.heads", Heads),
  view("head", "v.head_view", Head),
  view("predict", "v.predict", Predict),
  view("intervene", "v.intervene", Intervene, "intervene"),
  view("generate", "v.generate", Generate, "generate"),
  view("twins", "v.twins", Twins, "twins"),
  view("beams", "v.beams", Beams, "beams"),
  view("alignment", "v.alignment", Alignment, "cross"),
  view("rollout", "v.rollout", RolloutView),
  view("table", "v.table", Table, "table", "TABLE_MODEL"),
  view("runs", "v.runs", Runs, "runs", "RUN_DIR"),
  view("patches", "v.patches", Patches, "image", "IMAGE_RUN"),
];
