/** Types that the page, its views and its chapters share. Changes go with a line in web/PROTOCOL.md. */
import type { Signal } from "@preact/signals";
import type { ComponentType } from "preact";
import type { Language, Strings } from "./i18n";
import type { Store } from "./state/store";

export type { Language, Store, Strings };

/** One attention of a model: rows are queries, columns are keys. */
export interface AttentionInfo {
  path: string;
  layer: number;
  kind: "self" | "causal" | "cross";
  heads: number;
  rows: number;
  columns: number;
}

export type Task = "lm" | "masked_lm" | "seq2seq" | "classification" | "table" | "image" | "other";

export interface TraceInfo {
  id: string;
  title: string;
  model: string;
  live: boolean;
  dtype: string;
  rowTokens: string[];
  /** Source tokens of cross-attention; else the same as rowTokens. */
  columnTokens: string[];
  /** The tokens that the rows of an encoder-decoder predict, where they are known. */
  predictedTokens?: string[] | null;
  attentions: AttentionInfo[];
  /** "intervene", "generate", "twins", "beams", "logit_lens", "contributions", "table", "runs" */
  capabilities: string[];
  task: Task;
  /** The image that the model read, as a data URL. */
  image?: string | null;
}

export type Statistic = "exact" | "max" | "mean" | "sampled";

export interface Frame {
  shape: number[];
  data: Float32Array | Uint8Array | Int32Array;
  statistic: Statistic;
  dtype: "f32" | "u8" | "i32";
  scale: number;
  offset: number;
}

export type Query = Record<string, string | number>;

export interface StreamEvent {
  event: string;
  data: unknown;
}

/** Where answers come from: a server (http), a notebook kernel (comm) or the file itself (inline). */
export interface Transport {
  get(path: string, query?: Query, signal?: AbortSignal): Promise<unknown>;
  frame(path: string, query?: Query, signal?: AbortSignal): Promise<Frame>;
  post(path: string, body: unknown, signal?: AbortSignal): Promise<unknown>;
  stream(path: string, body: unknown, onEvent: (event: StreamEvent) => void, signal?: AbortSignal): Promise<void>;
}

export interface ChapterProps {
  /** Position of the timeline, from 0 to 1. */
  t: Signal<number>;
  trace: TraceInfo | null;
  transport: Transport;
  reducedMotion: boolean;
  language: Language;
  state: Store;
}

export interface Chapter {
  id: string;
  title: (s: Strings) => string;
  steps: number;
  component: ComponentType<ChapterProps>;
}

export interface ViewProps {
  trace: TraceInfo;
  transport: Transport;
  state: Store;
  language: Language;
}

export interface View {
  id: string;
  title: (s: Strings) => string;
  /** Capabilities of the trace without which the view is not offered. */
  needs: string[];
  component: ComponentType<ViewProps>;
  /** What is shown in place of the view where something it needs is missing, and the command that provides it. */
  missing?: (s: Strings) => { text: string; command: string };
}
