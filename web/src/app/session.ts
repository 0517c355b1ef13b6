/** What a mounted page knows: its transport, its state, the traces it can show. */
import { computed, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { Store } from "../state/store";
import type { Task, TraceInfo, Transport } from "../types";

/** The answer to GET info. */
export interface Info {
  version: string;
  task: Task;
  title: string;
  capabilities: string[];
  traces: TraceInfo[];
  runs: { id: string; title?: string }[];
  /** What the studio was started with. */
  source?: string;
  /** Whether a model is still being loaded: recorded traces are shown until then. */
  loading?: boolean;
}

const WHILE_LOADING = 1000; // milliseconds between two questions whether the model is there

export class Session {
  readonly info = signal<Info | null>(null);
  readonly traces = signal<TraceInfo[]>([]);
  readonly failure = signal("");
  /** The sentence that a screen reader speaks. */
  readonly sentence: Signal<string> = signal("");
  readonly trace: ReadonlySignal<TraceInfo | null>;

  constructor(
    readonly transport: Transport,
    readonly state: Store,
  ) {
    this.trace = computed(() => {
      const chosen = this.state.get("trace");
      return this.traces.value.find(({ id }) => id === chosen) ?? this.traces.value[0] ?? null;
    });
  }

  /** Asks what there is to see. */
  async open(signal?: AbortSignal): Promise<void> {
    this.failure.value = "";
    try {
      const info = (await this.transport.get("info", {}, signal)) as Info;
      const known = new Set(info.traces.map(({ id }) => id));
      this.traces.value = [...info.traces, ...this.traces.peek().filter(({ id }) => !known.has(id))];
      this.info.value = info;
      if (info.loading) setTimeout(() => !signal?.aborted && this.open(signal), WHILE_LOADING);
    } catch (error) {
      if (!signal?.aborted) this.failure.value = String((error as Error).message);
    }
  }

  /** Adds a trace that the server made, and shows it by default. */
  add(trace: TraceInfo, show = true): void {
    this.traces.value = [...this.traces.value.filter(({ id }) => id !== trace.id), trace];
    if (show) this.state.set("trace", trace.id);
  }

  /** Runs the loaded model on a text and shows the new trace. */
  async look(text: string, signal?: AbortSignal): Promise<void> {
    this.add((await this.transport.post("trace", { text }, signal)) as TraceInfo);
  }

  /** Tells a screen reader a sentence. */
  announce = (sentence: string): void => {
    this.sentence.value = sentence;
  };
}

export const SessionContext = createContext<Session | null>(null);

/** The session of the page that a component belongs to. */
export function useSession(): Session {
  const session = useContext(SessionContext);
  if (!session) throw new Error("expected a component inside of mount(), got one outside");
  return session;
}

/** How a component speaks to a screen reader: announce("'it' puts 41 % on 'animal'"). */
export function useAnnounce(): (sentence: string) => void {
  return useContext(SessionContext)?.announce ?? (() => {});
}
