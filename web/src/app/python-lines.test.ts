import assert from "node:assert/strict";
import { test } from "node:test";
import { parseHash } from "../state/store";
import type { TraceInfo } from "../types";
import { pythonLines } from "./python-lines";

const LIVE = { live: true, task: "seq2seq", title: "3 mars → 03-03" } as TraceInfo;

function lines(hash: string, trace: TraceInfo | null, source: string): string {
  const route = parseHash(hash);
  return pythonLines({ route, name: route.id, trace, source });
}

test("a chapter is a picture of the gallery", () => {
  assert.match(
    lines("#/chapter/dot?t=1", LIVE, "dates"),
    /FIGURES\["dot_product"\]\(\)\nfigure.save\("dot_product.svg"\)/,
  );
});

test("a recorded trace is drawn from its file, a view of a model from its studio", () => {
  const recorded = { ...LIVE, live: false };
  assert.match(lines("#/view/head?trace=t1&head=2", recorded, ""), /from_url\("#\/view\/head\?head=2", trace\)/);
  assert.match(lines("#/view/predict", recorded, ""), /view_figure\(studio/);
  const shown = lines("#/view/twins?trace=t1&first=a&second=b", LIVE, "runs/lm");
  assert.match(shown, /open_studio\("runs\/lm", text="3 mars"\)/);
  assert.match(shown, /view_figure\(studio, "#\/view\/twins\?first=a&second=b"\)/);
  assert.match(lines("#/view/runs", LIVE, "dates"), /open_studio\("runs"\)/);
});
