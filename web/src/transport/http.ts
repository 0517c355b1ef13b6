/** The transport of `softlook studio`: a server on this machine. */
import type { Frame, Query, StreamEvent, Transport } from "../types";
import { readEvents } from "./events";
import { readFrame } from "./frame";

/** The server's answer to a failed request, in its own words. */
export class TransportError extends Error {
  constructor(
    message: string,
    readonly status: number,
  ) {
    super(message);
  }
}

export class HttpTransport implements Transport {
  constructor(private readonly base = "api/") {}

  async get(path: string, query: Query = {}, signal?: AbortSignal): Promise<unknown> {
    return (await this.request(this.address(path, query), { signal })).json();
  }

  async frame(path: string, query: Query = {}, signal?: AbortSignal): Promise<Frame> {
    const response = await this.request(this.address(path, query), { signal });
    return readFrame(await response.arrayBuffer());
  }

  async post(path: string, body: unknown, signal?: AbortSignal): Promise<unknown> {
    return (await this.request(this.address(path, {}), jsonBody(body, signal))).json();
  }

  async stream(
    path: string,
    body: unknown,
    onEvent: (event: StreamEvent) => void,
    signal?: AbortSignal,
  ): Promise<void> {
    const response = await this.request(this.address(path, {}), jsonBody(body, signal));
    if (response.body) await readEvents(response.body, onEvent);
  }

  private address(path: string, query: Query): string {
    const text = new URLSearchParams(Object.entries(query).map(([key, value]) => [key, String(value)])).toString();
    return this.base + path + (text ? `?${text}` : "");
  }

  private async request(address: string, options: RequestInit): Promise<Response> {
    const response = await fetch(address, { credentials: "same-origin", ...options });
    if (!response.ok) throw new TransportError(await reason(response), response.status);
    return response;
  }
}

function jsonBody(body: unknown, signal?: AbortSignal): RequestInit {
  return { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal };
}

async function reason(response: Response): Promise<string> {
  try {
    const body = (await response.json()) as { error?: { message?: string } };
    return body.error?.message ?? `${response.status} ${response.statusText}`;
  } catch {
    return `${response.status} ${response.statusText}`;
  }
}
