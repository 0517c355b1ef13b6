/** The state of the page: a chapter or a view with its parameters, kept in the hash of the URL, with undo and redo. */
import { type ReadonlySignal, signal } from "@preact/signals";

export type Value = string | number | boolean;

export interface Route {
  kind: "chapter" | "view" | "start";
  id: string;
  parameters: Readonly<Record<string, string>>;
}

/** Changes of one parameter within this many milliseconds are one step of undo: a slider is dragged once. */
const ONE_GESTURE = 700;
const LONGEST_HISTORY = 200;

/** Reads "#/view/map?layer=1" into a route. */
export function parseHash(hash: string): Route {
  const [path, query = ""] = hash.replace(/^#?\/?/, "").split("?", 2);
  const [kind, id = ""] = path.split("/", 2);
  const parameters = Object.fromEntries(new URLSearchParams(query));
  if (kind === "chapter" || kind === "view") return { kind, id: decode(id), parameters };
  return { kind: "start", id: "", parameters };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Writes a route as the hash of a URL. */
export function formatHash(route: Route): string {
  const query = new URLSearchParams(route.parameters).toString();
  const path = route.kind === "start" ? "#/" : `#/${route.kind}/${encodeURIComponent(route.id)}`;
  return query ? `${path}?${query}` : path;
}

export class Store {
  private readonly current = signal<Route>(parseHash(""));
  private past: Route[] = [];
  private future: Route[] = [];
  private gesture = { key: "", time: 0 };

  /** `bind`: the state is the page's URL. A widget in a notebook shares its URL with other widgets and is not bound. */
  constructor(
    hash: string,
    private readonly bind: boolean,
  ) {
    this.current.value = parseHash(hash);
  }

  get route(): ReadonlySignal<Route> {
    return this.current;
  }

  /** The value of a parameter; a component that reads it is drawn again when it changes. */
  get(key: string): string | undefined {
    return this.current.value.parameters[key];
  }

  /** The value of a parameter as a number. */
  number(key: string, otherwise: number): number {
    const text = this.get(key);
    const value = text === undefined || text === "" ? Number.NaN : Number(text);
    return Number.isFinite(value) ? value : otherwise;
  }

  /** Sets a parameter; undefined removes it. */
  set(key: string, value: Value | undefined): void {
    this.update({ [key]: value });
  }

  /** Sets several parameters as one step of undo. */
  update(values: Record<string, Value | undefined>): void {
    const parameters = { ...this.current.peek().parameters };
    for (const [key, value] of Object.entries(values)) {
      if (value === undefined) delete parameters[key];
      else parameters[key] = String(value);
    }
    const next = { ...this.current.peek(), parameters };
    if (formatHash(next) === this.hash()) return;
    const changed = Object.entries(values).map(([key, value]) => (value === undefined ? `-${key}` : key));
    this.remember(changed.join());
    this.show(next, false);
  }

  /** Goes to a chapter or view. Parameters that are not given are kept if they are common to all (the trace, layer, head). */
  go(kind: Route["kind"], id: string, parameters: Record<string, Value> = {}): void {
    const kept = Object.entries(this.current.peek().parameters).filter(([key]) => SHARED.includes(key));
    const given = Object.entries(parameters).map(([key, value]) => [key, String(value)]);
    this.remember("");
    this.show({ kind, id, parameters: Object.fromEntries([...kept, ...given]) }, true);
  }

  canUndo(): boolean {
    return this.current.value !== undefined && this.past.length > 0;
  }

  canRedo(): boolean {
    return this.current.value !== undefined && this.future.length > 0;
  }

  undo(): void {
    this.step(this.past, this.future);
  }

  redo(): void {
    this.step(this.future, this.past);
  }

  hash(): string {
    return formatHash(this.current.peek());
  }

  /** Follows the address bar and the browser's back button; returns how to stop. */
  listen(): () => void {
    if (!this.bind) return () => {};
    const follow = () => {
      if (location.hash === this.hash()) return;
      this.remember("");
      this.current.value = parseHash(location.hash);
    };
    window.addEventListener("hashchange", follow);
    return () => window.removeEventListener("hashchange", follow);
  }

  private remember(key: string): void {
    const time = Date.now();
    const same = key !== "" && key === this.gesture.key && time - this.gesture.time < ONE_GESTURE;
    this.gesture = { key, time };
    if (same) return;
    this.past = [...this.past.slice(-LONGEST_HISTORY), this.current.peek()];
    this.future = [];
  }

  private step(from: Route[], to: Route[]): void {
    const route = from.pop();
    if (!route) return;
    to.push(this.current.peek());
    this.gesture = { key: "", time: 0 };
    this.show(route, false);
  }

  private show(route: Route, push: boolean): void {
    this.current.value = route;
    if (!this.bind || location.hash === formatHash(route)) return;
    // Safari throws when a page replaces its state too often; the hash then lags behind for a moment.
    try {
      if (push) history.pushState(null, "", formatHash(route));
      else history.replaceState(null, "", formatHash(route));
    } catch {
      this.gesture = { key: "", time: 0 };
    }
  }
}

const SHARED = ["trace", "layer", "attention", "head", "row", "column"];
