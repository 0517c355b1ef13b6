/** A map that is larger than the screen: its view, its tiles, and what is drawn now. */

import { weightOfByte } from "../transport/frame";
import type { Frame, Statistic } from "../types";
import {
  highestLevel,
  levelOf,
  type MapShape,
  type Pool,
  TILE,
  type TileAddress,
  tileKey,
  tilesOf,
  type Viewport,
} from "./pyramid";
import { type ColorScale, MapRenderer, type PlacedTile } from "./renderer";
import { TileStore } from "./tile-store";

/** Up to this level a maximum over all weights of a tile is fast; above it, a sample is drawn unless asked otherwise. */
const FAST_LEVEL = 4;

export type PoolChoice = "auto" | Pool;

export interface MapOptions {
  canvas: HTMLCanvasElement;
  shape: MapShape;
  load: (tile: TileAddress, signal: AbortSignal) => Promise<Frame>;
  onDraw: () => void;
}

export class MapModel {
  private readonly renderer: MapRenderer;
  private readonly tiles: TileStore;
  private scheduled = 0;
  private view: Viewport | null = null;
  private scale: ColorScale | null = null;
  private pool: PoolChoice = "auto";
  /** What the visible tiles are: the least exact of them. */
  statistic: Statistic = "exact";

  constructor(private readonly options: MapOptions) {
    this.renderer = new MapRenderer(options.canvas);
    this.tiles = new TileStore(options.load, this.schedule, (key) => this.renderer.forget(key));
  }

  get loading(): boolean {
    return this.tiles.loading;
  }

  get failure(): string {
    return this.tiles.failure;
  }

  /** Shows a view: draws what is here and asks for what is missing. */
  show(view: Viewport, scale: ColorScale, pool: PoolChoice): void {
    this.view = view;
    this.scale = scale;
    this.pool = pool;
    this.tiles.request(this.neededTiles(view));
    this.schedule();
  }

  /** The weight of a cell as the finest tile that is here shows it. */
  weightAt(row: number, column: number): number | undefined {
    if (!this.view) return undefined;
    for (let level = this.level(this.view); level <= highestLevel(this.options.shape); level++) {
      for (const pool of this.pools(level)) {
        const size = 2 ** level;
        const cell = { row: Math.floor(row / size), column: Math.floor(column / size) };
        const tile = { pool, level, row: Math.floor(cell.row / TILE), column: Math.floor(cell.column / TILE) };
        const frame = this.tiles.get(tile);
        if (!frame) continue;
        return weightOfByte(frame, frame.data[(cell.row % TILE) * frame.shape[1] + (cell.column % TILE)]);
      }
    }
    return undefined;
  }

  close(): void {
    cancelAnimationFrame(this.scheduled);
    this.tiles.close();
    this.renderer.close();
  }

  private readonly schedule = (): void => {
    cancelAnimationFrame(this.scheduled);
    this.scheduled = requestAnimationFrame(() => this.draw());
  };

  private level(view: Viewport): number {
    return levelOf(view.zoom, this.options.shape, Math.min(devicePixelRatio, 2));
  }

  /** The best pool first. */
  private pools(level: number): Pool[] {
    if (level === 0) return ["max"];
    if (this.pool === "sample" || (this.pool === "auto" && level > FAST_LEVEL)) return ["sample"];
    return [this.pool === "mean" ? "mean" : "max", "sample"];
  }

  private neededTiles(view: Viewport): TileAddress[] {
    const { shape } = this.options;
    const level = this.level(view);
    const [best, ...instant] = this.pools(level);
    const top = tilesOf(view, shape, highestLevel(shape), level === 0 && highestLevel(shape) === 0 ? "max" : "sample");
    const visible = (pool: Pool, ring = 0) => tilesOf(view, shape, level, pool, ring);
    const needed = [...instant.flatMap((pool) => visible(pool)), ...top, ...visible(best)];
    if (level <= 2) needed.push(...visible(best, 1));
    const seen = new Set<string>();
    return needed.filter((tile) => !seen.has(tileKey(tile)) && seen.add(tileKey(tile)));
  }

  private draw(): void {
    const { view, scale } = this;
    if (!view || !scale) return;
    this.renderer.draw(view, this.options.shape, this.placed(view), scale);
    this.statistic = this.statisticOf(view);
    this.options.onDraw();
  }

  /** From coarse to fine, so that the finest that is here lies on top. */
  private placed(view: Viewport): PlacedTile[] {
    const { shape } = this.options;
    const placed: PlacedTile[] = [];
    for (let level = highestLevel(shape); level >= this.level(view); level--) {
      for (const pool of this.pools(level).toReversed()) {
        for (const tile of tilesOf(view, shape, level, pool)) {
          const frame = this.tiles.get(tile);
          const size = 2 ** level;
          if (frame)
            placed.push({
              key: tileKey(tile),
              frame,
              row: tile.row * TILE * size,
              column: tile.column * TILE * size,
              size,
            });
        }
      }
    }
    return placed;
  }

  private statisticOf(view: Viewport): Statistic {
    const level = this.level(view);
    const [best] = this.pools(level);
    const frames = tilesOf(view, this.options.shape, level, best).map((tile) => this.tiles.get(tile));
    if (frames.some((frame) => !frame)) return "sampled";
    return frames[0]?.statistic ?? "exact";
  }
}
