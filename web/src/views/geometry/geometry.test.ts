import assert from "node:assert/strict";
import { test } from "node:test";
import { beamTree, hypothesis, lastStep, type Step } from "./beam_tree";
import { path, range, ticks } from "./curves";
import { differenceScale } from "./difference";
import { bars } from "./lanes";
import { layoutOf, lines, strongest } from "./lines";
import { groupsOf, windowAround } from "./long_text";
import { nextSorting, sortRows } from "./table";

test("lines of a row hold the share of its weight that was asked for, and no more lines than that takes", () => {
  assert.deepEqual(strongest([0.1, 0.6, 0.05, 0.25], 0.8), [1, 3]);
  assert.deepEqual(strongest([0, 1, 0], 0.99), [1]);
  assert.deepEqual(strongest([0, 0], 0.9), []);
});

test("a line runs from its query to its key, as wide as its weight", () => {
  const layout = layoutOf(100);
  const [first, second] = lines([1, 0, 0.5, 0.5], 2, layout);
  assert.equal(first.path, "M0,13 C40,13 60,13 100,13");
  assert.deepEqual([first.row, first.column, first.width], [0, 0, layout.widest]);
  assert.deepEqual(lines([0.5, 0.5], 2, layout, 1), lines([1, 0, 0.5, 0.5], 2, layout).slice(1));
  assert.ok(second.width < first.width);
});

const steps: Step[] = [
  {
    step: 0,
    beams: [
      { id: 1, parent: null, token: "a", logp: -1, kept: true },
      { id: 2, parent: null, token: "b", logp: -0.5, kept: true },
      { id: 3, parent: null, token: "c", logp: -0.2, kept: false },
    ],
  },
  {
    step: 1,
    beams: [
      { id: 4, parent: 1, token: "d", logp: -1.5, kept: true },
      { id: 5, parent: 2, token: "e", logp: -2, kept: true },
    ],
  },
];

test("kept beams stand above dropped ones, and the best hypothesis is marked back to its first token", () => {
  const tree = beamTree(steps);
  assert.deepEqual(
    tree.nodes.filter((node) => node.step === 0).map((node) => node.token),
    ["b", "a", "c"],
  );
  assert.deepEqual(
    tree.nodes.filter((node) => node.best).map((node) => node.token),
    ["a", "d"],
  );
  assert.deepEqual(hypothesis(tree, 5), ["b", "e"]);
  assert.equal(tree.slots, 3);
});

test("a search is shown until its best hypothesis is complete, though it goes on", () => {
  const finished = { id: 6, parent: 2, token: "</s>", logp: -0.1, kept: true, status: "finished" };
  const [first, second] = steps;
  assert.equal(lastStep([first, { ...second, beams: [finished] }, { step: 2, beams: [] }]), 2);
  assert.equal(lastStep(steps), 2);
});

test("an earlier time shows only the steps until then", () => {
  const tree = beamTree(steps, 1);
  assert.equal(tree.nodes.length, 3);
  assert.deepEqual(
    tree.nodes.filter((node) => node.best).map((node) => node.token),
    ["b"],
  );
  const ends = { step: 2, beams: [{ id: 6, parent: 5, token: "f", logp: -0.1, kept: true, status: "finished" }] };
  const later = { step: 3, beams: [{ id: 7, parent: 4, token: "g", logp: -0.1, kept: true }] };
  assert.deepEqual(
    beamTree([...steps, ends, later])
      .nodes.filter((node) => node.best)
      .map((node) => node.token),
    ["b", "e", "f"],
  );
  assert.deepEqual(beamTree(steps, 0), { nodes: [], edges: [], slots: 0 });
});

test("a bar that stands for several values shows the largest, so that no peak vanishes", () => {
  const result = bars([0, 0.1, 2, 0.1, 0, 1], 3);
  assert.deepEqual(
    result.map((bar) => [bar.index, bar.share, bar.count]),
    [
      [1, 0.05, 2],
      [2, 1, 2],
      [5, 0.5, 2],
    ],
  );
});

test("differences of one size have the same share in both directions, and no difference has none", () => {
  const scale = differenceScale([-0.2, 0.1]);
  assert.deepEqual(scale.ticks, [-0.2, 0, 0.2]);
  assert.equal(scale.share(0.1), -scale.share(-0.1));
  assert.equal(scale.share(0), 0);
  assert.equal(differenceScale([0, 0]).share(0), 0);
});

test("a value that is not finite leaves a gap in a curve", () => {
  const points = [0, 1, Number.NaN, 3].map((y, x) => ({ x, y }));
  assert.equal(path(points, { low: 0, high: 3 }, { low: 0, high: 3 }, 30, 30), "M0.0,30.0L10.0,20.0M30.0,0.0");
  assert.deepEqual(range([Number.NaN, 2, 4]), { low: 2, high: 4 });
  assert.deepEqual(ticks({ low: 0, high: 1 }), [0, 0.5, 1]);
});

test("rows without a value come last in both directions", () => {
  const rows = [2, null, 3, Number.NaN, 1];
  assert.deepEqual(sortRows(rows, (row) => row, true).slice(0, 3), [3, 2, 1]);
  assert.deepEqual(sortRows(rows, (row) => row, false).slice(0, 3), [1, 2, 3]);
  assert.deepEqual(nextSorting({ column: "entropy", descending: true }, "entropy").descending, false);
});

test("a window of a long text holds the token that was chosen, and never leaves the text", () => {
  assert.deepEqual(windowAround(500, 1000, 100), { first: 450, last: 550 });
  assert.deepEqual(windowAround(3, 1000, 100), { first: 0, last: 100 });
  assert.deepEqual(windowAround(990, 1000, 100), { first: 900, last: 1000 });
  assert.deepEqual(windowAround(3, 10, 100), { first: 0, last: 10 });
});

test("groups of a long text cover each token once", () => {
  const groups = groupsOf(1000, 64);
  assert.ok(groups.length <= 64);
  assert.deepEqual([groups[0].first, groups.at(-1)?.last], [0, 1000]);
  for (let i = 1; i < groups.length; i++) assert.equal(groups[i].first, groups[i - 1].last);
});
