/** The field for a new sentence, where a loaded model can read one. */
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { strings } from "../i18n";
import { useSession } from "./session";

export function TextInput() {
  const s = strings();
  const session = useSession();
  const text = useSignal("");
  const working = useSignal(false);
  const failure = useSignal("");
  const request = useRef<AbortController | null>(null);
  const info = session.info.value;
  useEffect(() => () => request.current?.abort(), []);
  if (!info?.capabilities.includes("trace")) return null;

  const send = async (event: Event) => {
    event.preventDefault();
    if (!text.peek().trim()) return;
    request.current?.abort();
    const current = new AbortController();
    request.current = current;
    working.value = true;
    failure.value = "";
    try {
      await session.look(text.peek(), current.signal);
    } catch (error) {
      if (!current.signal.aborted) failure.value = (error as Error).message;
    }
    if (request.current === current) working.value = false;
  };
  return (
    <form class="text-input" onSubmit={send}>
      <input
        type="text"
        aria-label={s.input_text}
        placeholder={s.input_hint}
        spellcheck={false}
        autocomplete="off"
        value={text.value}
        onInput={(event) => (text.value = event.currentTarget.value)}
      />
      <button type="submit" class="button" disabled={working.value}>
        {working.value ? s.input_working : s.input_send}
      </button>
      {failure.value && (
        <p class="failure" role="alert">
          {failure.value}
        </p>
      )}
    </form>
  );
}
