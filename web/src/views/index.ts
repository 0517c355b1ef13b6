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
import "./views.css";
import "./wide.css";

/** What a view lacks, and the command that provides it. */
const lacking = (key: keyof Strings, what: string) => (s: Strings) => ({
  text: s[key],
  command: `softlook studio ${what}`,
});

/** The views of part two, in order. */
export const views: View[] = [
  { id: "heads", title: (s) => s["v.heads"], needs: [], component: Heads },
  { id: "head", title: (s) => s["v.head_view"], needs: [], component: Head },
  { id: "predict", title: (s) => s["v.predict"], needs: [], component: Predict },
  {
    id: "intervene",
    title: (s) => s["v.intervene"],
    needs: ["intervene"],
    component: Intervene,
    missing: lacking("v.intervene.needs", "MODEL"),
  },
  {
    id: "generate",
    title: (s) => s["v.generate"],
    needs: ["generate"],
    component: Generate,
    missing: lacking("v.generate.needs", "MODEL"),
  },
  {
    id: "twins",
    title: (s) => s["v.twins"],
    needs: ["twins"],
    component: Twins,
    missing: lacking("v.twins.needs", "MODEL"),
  },
  {
    id: "beams",
    title: (s) => s["v.beams"],
    needs: ["beams"],
    component: Beams,
    missing: lacking("v.beams.needs", "MODEL"),
  },
  {
    id: "alignment",
    title: (s) => s["v.alignment"],
    needs: ["cross"],
    component: Alignment,
    missing: lacking("v.alignment.needs", "MODEL"),
  },
  { id: "rollout", title: (s) => s["v.rollout"], needs: [], component: RolloutView },
  {
    id: "table",
    title: (s) => s["v.table"],
    needs: ["table"],
    component: Table,
    missing: lacking("v.table.needs", "TABLE_MODEL"),
  },
  {
    id: "runs",
    title: (s) => s["v.runs"],
    needs: ["runs"],
    component: Runs,
    missing: lacking("v.runs.needs", "RUN_DIR"),
  },
  {
    id: "patches",
    title: (s) => s["v.patches"],
    needs: ["image"],
    component: Patches,
    missing: lacking("v.patches.needs", "MODEL"),
  },
];
