/** The transport of a notebook: messages to the kernel, through anywidget's model. */
import type { Frame, Query, StreamEvent, Transport } from "../types";
import { readFrame } from "./frame";

/** What is used of anywidget's model. */
export interface WidgetModel {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  save_changes(): void;
  send(content: unknown): void;
  on(event: string, listener: (...values: never[]) => void): void;
  off(event: string, listener: (...values: never[]) => void): void;
}

interface Reply {
  id: number;
  ok?: boolean;
  body?: unknown;
  message?: string;
  event?: string;
  data?: unknown;
}

interface Pending {
  resolve: (value: { body: unknown; buffers: DataView[] }) => void;
  reject: (error: Error) => void;
  onEvent?: (event: StreamEvent) => void;
}

export class CommTransport implements Transport {
  private readonly pending = new Map<number, Pending>();
  private last = 0;

  constructor(private readonly model: WidgetModel) {
    model.on("msg:custom", this.receive);
  }

  close(): void {
    this.model.off("msg:custom", this.receive);
    for (const { reject } of this.pending.values()) reject(new Error("the widget was closed"));
    this.pending.clear();
  }

  async get(path: string, query: Query = {}, signal?: AbortSignal): Promise<unknown> {
    return (await this.ask({ kind: "get", path, query }, signal)).body;
  }

  async frame(path: string, query: Query = {}, signal?: AbortSignal): Promise<Frame> {
    const { buffers } = await this.ask({ kind: "frame", path, query }, signal);
    const [view] = buffers;
    // A copy begins at an address that numbers of 4 bytes need.
    return readFrame(new Uint8Array(view.buffer, view.byteOffset, view.byteLength).slice().buffer);
  }

  async post(path: string, body: unknown, signal?: AbortSignal): Promise<unknown> {
    return (await this.ask({ kind: "post", path, body }, signal)).body;
  }

  async stream(
    path: string,
    body: unknown,
    onEvent: (event: StreamEvent) => void,
    signal?: AbortSignal,
  ): Promise<void> {
    await this.ask({ kind: "stream", path, body }, signal, onEvent);
  }

  private ask(message: object, signal?: AbortSignal, onEvent?: (event: StreamEvent) => void) {
    const id = ++this.last;
    return new Promise<{ body: unknown; buffers: DataView[] }>((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason as Error);
      this.pending.set(id, { resolve, reject, onEvent });
      signal?.addEventListener("abort", () => {
        if (!this.pending.delete(id)) return;
        this.model.send({ id, kind: "cancel" });
        reject(signal.reason as Error);
      });
      this.model.send({ id, ...message });
    });
  }

  private readonly receive = (reply: Reply, buffers: DataView[] = []): void => {
    const waiting = this.pending.get(reply.id);
    if (!waiting) return;
    if (reply.event !== undefined) {
      waiting.onEvent?.({ event: reply.event, data: reply.data });
      return;
    }
    this.pending.delete(reply.id);
    if (reply.ok) waiting.resolve({ body: reply.body, buffers });
    else waiting.reject(new Error(reply.message ?? "the kernel failed"));
  };
}
