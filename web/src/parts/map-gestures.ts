/** Mouse, touch and keys of a map: point, lock, move, zoom. */
import type { MapShape, Viewport } from "../webgl/pyramid";
import { keepInside, zoomAt } from "../webgl/pyramid";
import type { Cell } from "./map-overlay";

export interface MapGestures {
  shape: MapShape;
  view: () => Viewport | null;
  setView: (view: Viewport) => void;
  point: (cell: Cell | null) => void;
  lock: (cell: Cell) => void;
  /** Small maps always show everything. */
  zoomable: boolean;
}

const CLICK = 5; // pixels that a click may move

/** The cell under a place of the map, in pixels from its corner. */
export function cellAt(view: Viewport, shape: MapShape, x: number, y: number): Cell | null {
  const row = Math.floor(view.row + y / view.zoom);
  const column = Math.floor(view.column + x / view.zoom);
  if (row < 0 || column < 0 || row >= shape.rows || column >= shape.columns) return null;
  return { row, column };
}

/** Connects an element that covers the map; returns how to disconnect it. */
export function connectGestures(element: HTMLElement, gestures: MapGestures): () => void {
  const pointers = new Map<number, { x: number; y: number }>();
  let moved = 0;

  const place = (event: MouseEvent) => {
    const box = element.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const down = (event: PointerEvent) => {
    pointers.set(event.pointerId, place(event));
    moved = 0;
    element.setPointerCapture(event.pointerId);
  };
  const move = (event: PointerEvent) => {
    const view = gestures.view();
    if (!view) return;
    const now = place(event);
    const before = pointers.get(event.pointerId);
    if (!before) return gestures.point(cellAt(view, gestures.shape, now.x, now.y));
    const [other] = [...pointers].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
    moved += Math.hypot(now.x - before.x, now.y - before.y);
    pointers.set(event.pointerId, now);
    if (!gestures.zoomable || moved < CLICK) return;
    if (other) {
      const factor = Math.hypot(now.x - other.x, now.y - other.y) / Math.hypot(before.x - other.x, before.y - other.y);
      gestures.setView(zoomAt(view, gestures.shape, factor || 1, other.x, other.y));
    } else {
      const row = view.row - (now.y - before.y) / view.zoom;
      const column = view.column - (now.x - before.x) / view.zoom;
      gestures.setView(keepInside({ ...view, row, column }, gestures.shape));
    }
  };
  const up = (event: PointerEvent) => {
    const view = gestures.view();
    const at = pointers.get(event.pointerId);
    pointers.delete(event.pointerId);
    if (!view || !at || event.type === "pointercancel" || moved >= CLICK) return;
    const cell = cellAt(view, gestures.shape, at.x, at.y);
    if (cell) gestures.lock(cell);
  };
  const leave = () => gestures.point(null);
  const wheel = (event: WheelEvent) => {
    const view = gestures.view();
    const focused = element.closest(".map")?.contains(document.activeElement);
    if (!view || !gestures.zoomable || !(event.ctrlKey || focused)) return;
    event.preventDefault();
    const { x, y } = place(event);
    gestures.setView(zoomAt(view, gestures.shape, 2 ** (-event.deltaY / 240), x, y));
  };
  const listeners: [string, EventListener][] = [
    ["pointerdown", down as EventListener],
    ["pointermove", move as EventListener],
    ["pointerup", up as EventListener],
    ["pointercancel", up as EventListener],
    ["pointerleave", leave],
  ];
  for (const [name, listener] of listeners) element.addEventListener(name, listener);
  element.addEventListener("wheel", wheel, { passive: false });
  return () => {
    for (const [name, listener] of listeners) element.removeEventListener(name, listener);
    element.removeEventListener("wheel", wheel);
  };
}

/** Where an arrow key moves a cell; `stride` weights at a time, ten times that with shift. */
export function moveCell(event: KeyboardEvent, cell: Cell | null, shape: MapShape, stride: number): Cell | null {
  const steps: Record<string, [number, number]> = {
    ArrowUp: [-1, 0],
    ArrowDown: [1, 0],
    ArrowLeft: [0, -1],
    ArrowRight: [0, 1],
  };
  const step = steps[event.key];
  if (event.key === "Home") return { row: cell?.row ?? 0, column: 0 };
  if (event.key === "End") return { row: cell?.row ?? 0, column: shape.columns - 1 };
  if (!step) return null;
  if (!cell) return { row: 0, column: 0 };
  const by = stride * (event.shiftKey ? 10 : 1);
  const clamp = (index: number, count: number) => Math.min(Math.max(index, 0), count - 1);
  return {
    row: clamp(cell.row + by * step[0], shape.rows),
    column: clamp(cell.column + by * step[1], shape.columns),
  };
}
