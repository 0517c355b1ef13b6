/** Answers of the transport as they arrive: waiting, failed with a reason, or ready. */
import { useEffect, useState } from "preact/hooks";

export type Answer<T> =
  | { state: "waiting"; value?: undefined; message?: undefined }
  | { state: "failed"; value?: undefined; message: string }
  | { state: "ready"; value: T; message?: undefined };

const WAITING = { state: "waiting" } as const;

/** What a failed request says. */
export const reason = (error: unknown): string => (error instanceof Error ? error.message : String(error));

const isAbort = (error: unknown): boolean => error instanceof Error && error.name === "AbortError";

/**
 * Requests an answer whenever `key` changes, and cancels the one that nobody waits for any more. No key: no request.
 * While `group` is the same, the last answer stays until the next is there, so that pictures do not flicker; it names
 * what answers must have in common for that, such as their shape.
 */
export function useAnswer<T>(
  key: string | null,
  load: (signal: AbortSignal) => Promise<T>,
  group: string | null = key,
): Answer<T> {
  const [held, setHeld] = useState<{ answer: Answer<T>; group: string | null }>({ answer: WAITING, group: null });
  useEffect(() => {
    if (key === null) return;
    const abort = new AbortController();
    const hold = (answer: Answer<T>) => !abort.signal.aborted && setHeld({ answer, group });
    load(abort.signal).then(
      (value) => hold({ state: "ready", value }),
      (error) => isAbort(error) || hold({ state: "failed", message: reason(error) }),
    );
    return () => abort.abort();
  }, [key]);
  return key !== null && held.group === group ? held.answer : WAITING;
}

/** The value after it has not changed for `delay` milliseconds: a slider that moves asks once. */
export function useDebounced<T>(value: T, delay = 200): T {
  const [debounced, setDebounced] = useState(value);
  const same = JSON.stringify(value);
  useEffect(() => {
    const timer = setTimeout(() => setDebounced(value), delay);
    return () => clearTimeout(timer);
  }, [same, delay]);
  return debounced;
}
