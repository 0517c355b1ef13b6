/** Tiles of one map: at most 512 are kept, at most 6 are asked for at a time, the rest is cancelled when it leaves the view. */
import type { Frame } from "../types";
import { type TileAddress, tileKey } from "./pyramid";

const KEPT = 512;
const AT_ONCE = 6;

export type LoadTile = (tile: TileAddress, signal: AbortSignal) => Promise<Frame>;

export class TileStore {
  private readonly kept = new Map<string, Frame>(); // least recently used first
  private readonly underway = new Map<string, AbortController>();
  private queue: TileAddress[] = [];
  private closed = false;
  /** The message of the last tile that failed, until one succeeds. */
  failure = "";

  constructor(
    private readonly load: LoadTile,
    private readonly onChange: () => void,
    private readonly onEvict: (key: string) => void = () => {},
  ) {}

  /** The tile if it is here; it then counts as used. */
  get(tile: TileAddress): Frame | undefined {
    const key = tileKey(tile);
    const frame = this.kept.get(key);
    if (frame) {
      this.kept.delete(key);
      this.kept.set(key, frame);
    }
    return frame;
  }

  /** Asks for tiles in this order; what was asked for before and is not among them is cancelled. */
  request(tiles: TileAddress[]): void {
    const requested = new Set(tiles.map(tileKey));
    for (const [key, request] of this.underway) if (!requested.has(key)) request.abort();
    this.queue = tiles.filter((tile) => !this.kept.has(tileKey(tile)) && !this.isUnderway(tile));
    this.next();
  }

  /** Whether tiles are still to come. */
  get loading(): boolean {
    return this.underway.size > 0 || this.queue.length > 0;
  }

  get size(): number {
    return this.kept.size;
  }

  close(): void {
    this.closed = true;
    this.queue = [];
    for (const request of this.underway.values()) request.abort();
    this.kept.clear();
  }

  private isUnderway(tile: TileAddress): boolean {
    const request = this.underway.get(tileKey(tile));
    return request !== undefined && !request.signal.aborted;
  }

  private next(): void {
    while (this.underway.size < AT_ONCE) {
      const tile = this.queue.shift();
      if (!tile) return;
      void this.fetch(tile);
    }
  }

  private async fetch(tile: TileAddress): Promise<void> {
    const key = tileKey(tile);
    const request = new AbortController();
    this.underway.set(key, request);
    try {
      const frame = await this.load(tile, request.signal);
      if (this.closed) return;
      this.keep(key, frame);
      this.failure = "";
    } catch (error) {
      if (!request.signal.aborted) this.failure = (error as Error).message;
    } finally {
      if (this.underway.get(key) === request) this.underway.delete(key);
    }
    if (this.closed) return;
    this.next();
    this.onChange();
  }

  private keep(key: string, frame: Frame): void {
    this.kept.set(key, frame);
    for (const [oldest] of this.kept) {
      if (this.kept.size <= KEPT) return;
      this.kept.delete(oldest);
      this.onEvict(oldest);
    }
  }
}
