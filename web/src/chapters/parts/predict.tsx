/** A question to answer before the picture shows it. */
import { useProps, useText } from "./context";
import { Words } from "./words";

/** The texts are "question", "option0", "option1" … and "answer". `answer`: the right option. */
export function Predict({ options, answer }: { options: number; answer: number }) {
  const text = useText();
  const { state } = useProps();
  const guess = state.number("guess", -1);
  return (
    <section class="predict">
      <h3>{text("predict")}</h3>
      <p>
        <Words text={text("question")} />
      </p>
      <div class="options">
        {Array.from({ length: options }, (_, i) => (
          <button
            key={i}
            type="button"
            class={guess < 0 ? "" : i === answer ? "right" : i === guess ? "wrong" : ""}
            aria-pressed={guess === i}
            onKeyDown={(event) => event.key === " " && event.stopPropagation()}
            onClick={() => state.set("guess", i)}
          >
            {text(`option${i}`)}
          </button>
        ))}
      </div>
      <p class="answer" aria-live="polite">
        {guess >= 0 && (
          <>
            <b>{text(guess === answer ? "right" : "wrong")}</b> <Words text={text("answer")} />
          </>
        )}
      </p>
    </section>
  );
}
