/** Tokens of a text as a row of buttons: one tab stop, arrow keys move, a click locks and Esc unlocks. */
import { useEffect, useRef, useState } from "preact/hooks";
import { fill, strings } from "../../i18n";
import { TokenText } from "../../parts/token";
import { windowAround } from "../geometry/long_text";

interface TokensProps {
  label: string;
  tokens: string[];
  /** The token that is locked, or -1. */
  locked: number;
  /** Shade of each token, 0 to 1. */
  shades?: ArrayLike<number>;
  /** Tokens with a mark, such as those that are masked. */
  marked?: (index: number) => boolean;
  pressed?: (index: number) => boolean;
  onLock: (index: number) => void;
  onPoint?: (index: number) => void;
}

/** Of longer texts, a window is shown, and a field goes to any position. */
const WINDOW = 256;

export function Tokens({ label, tokens, locked, shades, marked, pressed, onLock, onPoint }: TokensProps) {
  const group = useRef<HTMLDivElement>(null);
  const [seen, setSeen] = useState(locked);
  const { first, last } = windowAround(Math.max(seen, 0), tokens.length, WINDOW);
  useEffect(() => {
    if (locked >= 0 && (locked < first || locked >= last)) setSeen(locked);
  }, [locked]);
  const move = (index: number) => {
    const next = Math.max(first, Math.min(last - 1, index));
    (group.current?.children[next - first] as HTMLElement | undefined)?.focus();
    onPoint?.(next);
  };
  const stop = locked >= first && locked < last ? locked : first;
  return (
    <div>
      {tokens.length > WINDOW && <Position count={tokens.length} value={seen} onGo={setSeen} />}
      <div class="v-tokens" role="group" aria-label={label} ref={group}>
        {tokens.slice(first, last).map((token, offset) => {
          const index = first + offset;
          const shade = shades && String(Math.round(100 * Math.min(1, Math.max(0, shades[index]))));
          return (
            <button
              key={index}
              type="button"
              class={marked?.(index) ? "v-token marked" : "v-token"}
              tabIndex={index === stop ? 0 : -1}
              aria-pressed={pressed ? pressed(index) : index === locked}
              style={shade ? { "--shade": shade } : undefined}
              onClick={() => onLock(index)}
              onMouseEnter={() => onPoint?.(index)}
              onKeyDown={(event) => {
                const target = step(event.key, index, tokens.length);
                if (target === null) return;
                event.preventDefault();
                event.stopPropagation();
                move(target);
              }}
            >
              <TokenText token={token} />
            </button>
          );
        })}
      </div>
    </div>
  );
}

interface PositionProps {
  count: number;
  value: number;
  onGo: (position: number) => void;
}

/** The position that is shown. */
function Position({ count, value, onGo }: PositionProps) {
  return (
    <label class="v-field v-position">
      <span>{fill(strings()["v.position"], { last: count - 1 })}</span>
      <input
        type="number"
        min={0}
        max={count - 1}
        value={Math.max(value, 0)}
        onChange={(event) => onGo(Math.max(0, Math.min(count - 1, Number(event.currentTarget.value) || 0)))}
      />
    </label>
  );
}

function step(key: string, index: number, count: number): number | null {
  if (key === "ArrowRight" || key === "ArrowDown") return index + 1;
  if (key === "ArrowLeft" || key === "ArrowUp") return index - 1;
  if (key === "Home") return 0;
  if (key === "End") return count - 1;
  return null;
}
