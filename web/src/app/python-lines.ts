/** The lines of Python that draw what the page shows. */
import type { Route } from "../state/store";
import { formatHash } from "../state/store";
import type { TraceInfo } from "../types";

/** The picture of the library's gallery that belongs to a chapter. */
const GALLERY: Record<string, string> = {
  dot: "dot_product",
  softmax: "softmax_temperature",
  scale: "why_sqrt_d",
  dictionary: "soft_dictionary",
  qkv: "queries_keys_values",
  matrix: "matrix_attention",
  heads: "multi_head",
  permutation: "permutation",
  linear: "fully_connected",
  convolution: "convolution",
  masks: "causal_mask",
  positions: "position_encodings",
  recurrent: "path_and_cost",
  transformer: "encoder_decoder",
};

/** Views that a trace file has all numbers of. */
const OF_TRACES = ["heads", "head", "rollout", "alignment"];

/** The model of the package, which `softlook studio` without a source shows. */
const INCLUDED = "dates";

interface Shown {
  route: Route;
  name: string;
  trace: TraceInfo | null;
  /** What the studio was started with; "" in a file or a notebook. */
  source: string;
}

export function pythonLines({ route, name, trace, source }: Shown): string {
  if (route.kind === "chapter" && GALLERY[name]) return galleryLines(GALLERY[name]);
  const { trace: _, ...parameters } = route.parameters; // a trace has another name the next time
  const hash = JSON.stringify(formatHash({ ...route, parameters }));
  const isRecorded = OF_TRACES.includes(name) && (!trace?.live || !source);
  return (isRecorded ? traceLines(hash) : studioLines(hash, source, trace)).concat(save(name)).join("\n");
}

const save = (name: string): string => `figure.save("${name}.svg")`;

function galleryLines(picture: string): string {
  return [
    "from softlook.lens.figures.gallery import FIGURES",
    "",
    `figure = FIGURES["${picture}"]()`,
    save(picture),
  ].join("\n");
}

function traceLines(hash: string): string[] {
  return [
    "from softlook.lens import figures, load_trace",
    "",
    'trace = load_trace("trace.safetensors")  # written by trace.save("trace.safetensors")',
    `figure = figures.from_url(${hash}, trace)`,
  ];
}

function studioLines(hash: string, source: string, trace: TraceInfo | null): string[] {
  const runs = source === INCLUDED && hash.startsWith('"#/view/runs'); // it is shown with the runs of this folder
  const draw = `figure = view_figure(studio, ${hash})`;
  if (!source)
    return ["from softlook.studio import view_figure", "", "# studio: a softlook.studio.Studio with the model", draw];
  const isText = trace !== null && trace.task !== "table" && trace.task !== "image";
  const text = isText ? `, text=${JSON.stringify(trace.title.split(" → ")[0])}` : "";
  return [
    "from softlook.recipes.studio import open_studio",
    "from softlook.studio import view_figure",
    "",
    `studio = open_studio(${JSON.stringify(runs ? "runs" : source)}${runs ? "" : text})`,
    draw,
  ];
}
