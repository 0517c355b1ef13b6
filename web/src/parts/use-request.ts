/** A request whose answer a component shows; it is cancelled when the component no longer wants it. */
import { useEffect, useState } from "preact/hooks";

export interface Answer<T> {
  value: T | null;
  failure: string;
  loading: boolean;
}

const NOTHING = { value: null, failure: "", loading: false };

/** Loads the answer that a key names, `delay` milliseconds after the key was first requested; null wants nothing. */
export function useRequest<T>(key: string | null, load: (signal: AbortSignal) => Promise<T>, delay = 0): Answer<T> {
  const [answer, setAnswer] = useState<Answer<T> & { key: string | null }>({ ...NOTHING, key: null });
  useEffect(() => {
    if (key === null) return;
    const request = new AbortController();
    const start = async () => {
      try {
        const value = await load(request.signal);
        if (!request.signal.aborted) setAnswer({ value, failure: "", loading: false, key });
      } catch (error) {
        if (!request.signal.aborted) setAnswer({ ...NOTHING, failure: (error as Error).message, key });
      }
    };
    const timer = setTimeout(start, delay);
    return () => {
      clearTimeout(timer);
      request.abort();
    };
  }, [key]);
  if (key === null) return NOTHING;
  return answer.key === key ? answer : { ...NOTHING, loading: true };
}
