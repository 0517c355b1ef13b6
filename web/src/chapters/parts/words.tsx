/** Text whose coloured words point at blocks of the picture: "the [query:q] asks" colors "query" and lights block q. */

import { useLit, usePointed } from "./context";
import type { Tone } from "./squares";

const MARK = /\[([^\]|]+)\|(\w+)(?::([^\]]+))?\]/g;

interface Piece {
  text: string;
  role?: Tone;
  block?: string;
}

/** "[query|query:q]" is the word "query" in the color of queries; it lights block q. */
export function pieces(text: string): Piece[] {
  const found: Piece[] = [];
  let end = 0;
  for (const match of text.matchAll(MARK)) {
    found.push({ text: text.slice(end, match.index) });
    found.push({ text: match[1], role: match[2] as Tone, block: match[3] });
    end = match.index + match[0].length;
  }
  return [...found, { text: text.slice(end) }].filter((piece) => piece.text);
}

/** "W^Q" with Q raised, "Z_h" with h lowered. */
function Scripts({ text }: { text: string }) {
  const parts = text.split(/([_^]\w)/);
  return (
    <>
      {parts.map((part, i) => {
        if (i % 2 === 0) return part;
        return part[0] === "^" ? <sup key={i}>{part[1]}</sup> : <sub key={i}>{part[1]}</sub>;
      })}
    </>
  );
}

export function Words({ text }: { text: string }) {
  const lit = useLit();
  const pointed = usePointed();
  return (
    <>
      {pieces(text).map((piece, i) => {
        if (!piece.role) return <Scripts key={i} text={piece.text} />;
        const { block } = piece;
        return (
          <mark
            key={i}
            class={`ink-${piece.role} ${block && block === pointed.value ? "pointed" : ""}`}
            data-word={block}
            onPointerEnter={() => block && (lit.value = block)}
            onPointerLeave={() => (lit.value = "")}
          >
            <Scripts text={piece.text} />
          </mark>
        );
      })}
    </>
  );
}
