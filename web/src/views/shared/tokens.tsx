/** Tokens of a text as a row of buttons: one tab stop, arrow keys move, a click locks and Esc unlocks. */
import { useRef } from "preact/hooks";
import { TokenText } from "../../parts/token";

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

export function Tokens({ label, tokens, locked, shades, marked, pressed, onLock, onPoint }: TokensProps) {
  const group = useRef<HTMLDivElement>(null);
  const move = (index: number) => {
    const next = Math.max(0, Math.min(tokens.length - 1, index));
    (group.current?.children[next] as HTMLElement | undefined)?.focus();
    onPoint?.(next);
  };
  const stop = locked >= 0 && locked < tokens.length ? locked : 0;
  return (
    <div class="v-tokens" role="group" aria-label={label} ref={group}>
      {tokens.map((token, index) => (
        <button
          key={index}
          type="button"
          class={marked?.(index) ? "v-token marked" : "v-token"}
          tabIndex={index === stop ? 0 : -1}
          aria-pressed={pressed ? pressed(index) : index === locked}
          style={shades ? { "--shade": String(Math.round(100 * Math.min(1, Math.max(0, shades[index])))) } : undefined}
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
      ))}
    </div>
  );
}

function step(key: string, index: number, count: number): number | null {
  if (key === "ArrowRight" || key === "ArrowDown") return index + 1;
  if (key === "ArrowLeft" || key === "ArrowUp") return index - 1;
  if (key === "Home") return 0;
  if (key === "End") return count - 1;
  return null;
}
