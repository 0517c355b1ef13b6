/** Server-sent events, read from the body of a POST. */
import type { StreamEvent } from "../types";

export async function readEvents(
  body: ReadableStream<Uint8Array>,
  onEvent: (event: StreamEvent) => void,
): Promise<void> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    rest += done ? decoder.decode() : decoder.decode(value, { stream: true });
    const blocks = rest.replaceAll("\r\n", "\n").split("\n\n");
    rest = blocks.pop() ?? "";
    for (const block of blocks) emit(block, onEvent);
    if (done) return emit(rest, onEvent);
  }
}

function emit(block: string, onEvent: (event: StreamEvent) => void): void {
  const lines = block.split("\n");
  const field = (name: string) =>
    lines.filter((line) => line.startsWith(`${name}:`)).map((line) => line.slice(name.length + 1).replace(/^ /, ""));
  const data = field("data").join("\n");
  if (!data) return;
  onEvent({ event: field("event")[0] ?? "message", data: JSON.parse(data) });
}
