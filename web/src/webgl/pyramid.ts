/** Which tiles of a map a view needs. A tile of level n has 256 x 256 cells that each cover 2^n x 2^n weights. */

export const TILE = 256;

/** What is seen: the first row and column, and pixels of the screen per weight. */
export interface Viewport {
  row: number;
  column: number;
  /** Pixels per weight; may be far below 1. */
  zoom: number;
  width: number;
  height: number;
}

/** What a cell of several weights shows. */
export type Pool = "max" | "mean" | "sample";

export interface TileAddress {
  pool: Pool;
  level: number;
  row: number;
  column: number;
}

export interface MapShape {
  rows: number;
  columns: number;
  /** A causal map has nothing right of its diagonal: those tiles are never asked for. */
  causal: boolean;
}

export function tileKey({ pool, level, row, column }: TileAddress): string {
  return `${level === 0 ? "" : pool}/${level}/${row}/${column}`;
}

/** The first level whose cells are at least a pixel, so that no cell is skipped by the screen. */
export function levelOf(zoom: number, shape: MapShape, pixelRatio = 1): number {
  const level = Math.ceil(Math.log2(1 / (zoom * pixelRatio)) - 1e-9);
  return Math.min(Math.max(level, 0), highestLevel(shape));
}

/** The level at which the whole map is one tile. */
export function highestLevel(shape: MapShape): number {
  return Math.max(Math.ceil(Math.log2(Math.max(shape.rows, shape.columns) / TILE)), 0);
}

function isEmpty(tile: TileAddress, shape: MapShape): boolean {
  if (!shape.causal) return false;
  const size = TILE * 2 ** tile.level;
  const lastRow = Math.min((tile.row + 1) * size, shape.rows) - 1;
  return tile.column * size > lastRow + Math.max(shape.columns - shape.rows, 0);
}

/** The tiles of a level that a view sees, the middle of the screen first; `ring` more on each side. */
export function tilesOf(view: Viewport, shape: MapShape, level: number, pool: Pool, ring = 0): TileAddress[] {
  const size = TILE * 2 ** level;
  const rows = range(view.row, view.row + view.height / view.zoom, size, shape.rows, ring);
  const columns = range(view.column, view.column + view.width / view.zoom, size, shape.columns, ring);
  const tiles: TileAddress[] = [];
  for (const row of rows) for (const column of columns) tiles.push({ pool, level, row, column });
  const middle = [
    (view.row + view.height / view.zoom / 2) / size - 0.5,
    (view.column + view.width / view.zoom / 2) / size - 0.5,
  ];
  const distance = (tile: TileAddress) => Math.hypot(tile.row - middle[0], tile.column - middle[1]);
  return tiles.filter((tile) => !isEmpty(tile, shape)).sort((a, b) => distance(a) - distance(b));
}

function range(from: number, to: number, size: number, end: number, ring: number): number[] {
  const first = Math.max(Math.floor(from / size) - ring, 0);
  const last = Math.min(Math.ceil(to / size) - 1 + ring, Math.ceil(end / size) - 1);
  return Array.from({ length: Math.max(last - first + 1, 0) }, (_, i) => first + i);
}

/** The view that shows the whole map. */
export function wholeMap(shape: MapShape, width: number, height: number): Viewport {
  const zoom = Math.min(width / shape.columns, height / shape.rows);
  return { row: 0, column: 0, zoom, width, height };
}

/** Zooms by a factor and keeps the weight under a pixel where it is. */
export function zoomAt(view: Viewport, shape: MapShape, factor: number, x: number, y: number): Viewport {
  const least = Math.min(view.width / shape.columns, view.height / shape.rows);
  const zoom = Math.min(Math.max(view.zoom * factor, least), 64);
  const row = view.row + y / view.zoom - y / zoom;
  const column = view.column + x / view.zoom - x / zoom;
  return keepInside({ ...view, zoom, row, column }, shape);
}

/** Moves a view so that it shows no more than the map. */
export function keepInside(view: Viewport, shape: MapShape): Viewport {
  const clamp = (first: number, seen: number, all: number) => Math.min(Math.max(first, 0), Math.max(all - seen, 0));
  return {
    ...view,
    row: clamp(view.row, view.height / view.zoom, shape.rows),
    column: clamp(view.column, view.width / view.zoom, shape.columns),
  };
}

/** Moves a view just so far that a cell is on the screen. */
export function showCell(view: Viewport, shape: MapShape, row: number, column: number): Viewport {
  const move = (first: number, seen: number, cell: number) => {
    if (cell < first) return cell;
    return cell + 1 > first + seen ? cell + 1 - seen : first;
  };
  return keepInside(
    {
      ...view,
      row: move(view.row, view.height / view.zoom, row),
      column: move(view.column, view.width / view.zoom, column),
    },
    shape,
  );
}
