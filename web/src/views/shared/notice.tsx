/** What a view says in place of a picture: that it waits, that something failed, or what it needs. */
import type { ComponentChildren } from "preact";
import { strings } from "../../i18n";
import type { Answer } from "./answer";

interface NoticeProps {
  children: ComponentChildren;
  /** The command that provides what is missing. */
  command?: string;
  alert?: boolean;
}

export function Notice({ children, command, alert }: NoticeProps) {
  return (
    <div class={alert ? "v-notice v-alert" : "v-notice"} role={alert ? "alert" : undefined}>
      <p>{children}</p>
      {command && (
        <pre>
          <code>{command}</code>
        </pre>
      )}
    </div>
  );
}

interface ReadyProps<T> {
  answer: Answer<T>;
  children: (value: T) => ComponentChildren;
}

/** Children once the answer is there; until then that it is awaited, or why it failed. */
export function Ready<T>({ answer, children }: ReadyProps<T>) {
  if (answer.state === "ready") return <>{children(answer.value)}</>;
  if (answer.state === "failed") return <Notice alert>{answer.message}</Notice>;
  return (
    <p class="v-waiting" aria-busy="true">
      {strings()["v.waiting"]}
    </p>
  );
}
