import assert from "node:assert/strict";
import { test } from "node:test";
import { highestLevel, keepInside, levelOf, showCell, TILE, tilesOf, wholeMap, zoomAt } from "./pyramid";

const LONG = { rows: 32_768, columns: 32_768, causal: true };
const FULL = { rows: 1000, columns: 600, causal: false };

test("the whole map of the highest level is one tile", () => {
  assert.equal(highestLevel(LONG), 7);
  const view = wholeMap(LONG, 200, 200);
  assert.deepEqual(tilesOf(view, LONG, highestLevel(LONG), "max"), [{ pool: "max", level: 7, row: 0, column: 0 }]);
});

test("a cell of the level that is drawn is at least a pixel", () => {
  for (const zoom of [0.0079, 0.03, 0.5, 0.51, 1, 7]) {
    const cell = zoom * 2 ** levelOf(zoom, LONG);
    assert.ok(cell >= 1 && (cell < 2 || zoom >= 1), `${zoom}: ${cell}`);
  }
});

test("tiles above the diagonal of a causal map are never asked for", () => {
  const view = { ...wholeMap(LONG, 512, 512), zoom: 1 / 64 };
  const tiles = tilesOf(view, LONG, 4, "max");
  assert.equal(tiles.length, (8 * 9) / 2);
  for (const { row, column } of tiles) assert.ok(column <= row);
});

test("tiles of a view cover each of its cells, the middle first", () => {
  const view = { row: 300, column: 100, zoom: 1, width: 400, height: 500 };
  const tiles = tilesOf(view, FULL, 0, "max");
  const covered = (row: number, column: number) =>
    tiles.some((tile) => tile.row === Math.floor(row / TILE) && tile.column === Math.floor(column / TILE));
  for (const [row, column] of [
    [300, 100],
    [799, 499],
    [300, 499],
    [799, 100],
  ])
    assert.ok(covered(row, column));
  assert.deepEqual([tiles[0].row, tiles[0].column], [2, 1]);
});

test("zooming keeps the weight under the pointer where it is", () => {
  const view = { row: 5000, column: 5000, zoom: 0.1, width: 400, height: 400 };
  const zoomed = zoomAt(view, LONG, 3, 120, 80);
  assert.ok(Math.abs(view.row + 80 / view.zoom - (zoomed.row + 80 / zoomed.zoom)) < 1e-9);
  assert.ok(Math.abs(view.column + 120 / view.zoom - (zoomed.column + 120 / zoomed.zoom)) < 1e-9);
});

test("a view shows no more than the map", () => {
  const view = keepInside({ row: -50, column: 31_000, zoom: 0.5, width: 2000, height: 2000 }, LONG);
  assert.deepEqual([view.row, view.column], [0, 32_768 - 4000]);
});

test("moving to a cell shows it", () => {
  const view = { row: 0, column: 0, zoom: 2, width: 200, height: 200 };
  const moved = showCell(view, LONG, 150, 40);
  assert.deepEqual([moved.row, moved.column], [51, 0]);
});
