/** The transport of a page that came with a recording: it answers until the server, which is still starting, does. */
import type { Frame, Query, StreamEvent, Transport } from "../types";
import { InlineTransport } from "./inline";
import type { Recording } from "./recording";

export class StartingTransport implements Transport {
  private readonly inline: InlineTransport;
  private isReady = false;

  constructor(
    recording: Recording,
    private readonly server: Transport,
  ) {
    this.inline = new InlineTransport(recording);
    const ready = () => {
      this.isReady = true;
    };
    void server.get("info").then(ready, ready); // after an error, requests to the server say what is wrong
  }

  async get(path: string, query: Query = {}, signal?: AbortSignal): Promise<unknown> {
    const isReady = this.isReady;
    const answer = await this.current.get(path, query, signal);
    return path === "info" && !isReady ? { ...(answer as object), loading: true } : answer;
  }

  frame(path: string, query: Query = {}, signal?: AbortSignal): Promise<Frame> {
    return this.current.frame(path, query, signal);
  }

  post(path: string, body: unknown, signal?: AbortSignal): Promise<unknown> {
    return this.server.post(path, body, signal);
  }

  stream(path: string, body: unknown, onEvent: (event: StreamEvent) => void, signal?: AbortSignal): Promise<void> {
    return this.server.stream(path, body, onEvent, signal);
  }

  private get current(): Transport {
    return this.isReady ? this.server : this.inline;
  }
}
