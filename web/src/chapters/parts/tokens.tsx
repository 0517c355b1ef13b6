/** The words of a toy sentence: one can be chosen, or their order changed. */
import { useRef } from "preact/hooks";
import { useText } from "./context";
import { Choice } from "./controls";

interface TokenChoiceProps {
  tokens: string[];
  value: number;
  onChange: (index: number) => void;
}

export function TokenChoice({ tokens, value, onChange }: TokenChoiceProps) {
  const text = useText();
  const options = tokens.map((token) => text(`w.${token}`));
  return <Choice label={text("word")} options={options} value={value} onChange={onChange} />;
}

interface TokenOrderProps {
  tokens: string[];
  order: number[];
  onChange: (order: number[]) => void;
}

/** The order with the element at `from` moved to `to`. */
export function moved(order: number[], from: number, to: number): number[] {
  const rest = order.filter((_, i) => i !== from);
  return [...rest.slice(0, to), order[from], ...rest.slice(to)];
}

/** Words that can be dragged, or moved with the arrow keys. */
export function TokenOrder({ tokens, order, onChange }: TokenOrderProps) {
  const text = useText();
  const dragged = useRef<number | null>(null);
  const move = (token: number, to: number) => {
    const from = order.indexOf(token);
    if (to !== from && to >= 0 && to < order.length) onChange(moved(order, from, to));
  };
  const over = (event: PointerEvent) => {
    if (dragged.current === null) return;
    const under = document.elementsFromPoint(event.clientX, event.clientY);
    const target = under.find((element) => element instanceof HTMLElement && element.dataset.token);
    if (target instanceof HTMLElement) move(dragged.current, order.indexOf(Number(target.dataset.token)));
  };
  return (
    <ul class="order" aria-label={text("order")}>
      {order.map((token, i) => (
        <li key={token}>
          <button
            type="button"
            class="mono"
            data-token={token}
            data-keys
            aria-label={`${tokens[token]}, ${i + 1} / ${order.length}: ${text("drag")}`}
            onPointerDown={(event) => {
              dragged.current = token;
              event.currentTarget.setPointerCapture(event.pointerId);
            }}
            onPointerMove={over}
            onPointerUp={() => (dragged.current = null)}
            onPointerCancel={() => (dragged.current = null)}
            onKeyDown={(event) => {
              const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
              if (!by) return;
              event.preventDefault();
              event.stopPropagation();
              move(token, i + by);
              event.currentTarget.focus();
            }}
          >
            <span class="grip" aria-hidden="true">
              ⠿
            </span>
            {tokens[token]}
          </button>
        </li>
      ))}
    </ul>
  );
}
