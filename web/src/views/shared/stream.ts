/** Events that the server sends while it works, such as generated tokens. */
import { useEffect, useRef, useState } from "preact/hooks";
import type { Transport } from "../../types";
import { reason } from "./answer";

export interface Stream<Item, Done> {
  items: Item[];
  /** The data of the last event, once the server has finished. */
  done?: Done;
  failure: string;
  busy: boolean;
  start: (body: unknown) => Promise<void>;
  stop: () => void;
}

/** Collects the events `event` of a stream. Another start, `stop`, and leaving the view end the one before. */
export function useStream<Item, Done = unknown>(transport: Transport, path: string, event: string): Stream<Item, Done> {
  const [items, setItems] = useState<Item[]>([]);
  const [done, setDone] = useState<Done>();
  const [failure, setFailure] = useState("");
  const [busy, setBusy] = useState(false);
  const abort = useRef<AbortController | null>(null);
  useEffect(() => () => abort.current?.abort(), []);
  const start = async (body: unknown) => {
    abort.current?.abort();
    const own = new AbortController();
    abort.current = own;
    setItems([]);
    setDone(undefined);
    setFailure("");
    setBusy(true);
    try {
      await transport.stream(
        path,
        body,
        (got) => {
          if (own.signal.aborted) return;
          if (got.event === event) setItems((old) => [...old, got.data as Item]);
          if (got.event === "done") setDone(got.data as Done);
          if (got.event === "error") setFailure(String((got.data as { message?: string }).message));
        },
        own.signal,
      );
    } catch (error) {
      if (!own.signal.aborted) setFailure(reason(error));
    }
    if (abort.current === own) setBusy(false);
  };
  const stop = () => {
    abort.current?.abort();
    setBusy(false);
  };
  return { items, done, failure, busy, start, stop };
}
