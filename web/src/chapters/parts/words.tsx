/** Text whose coloured words point at blocks of the picture: "the [query:q] asks" colors "query" and lights block q. */

import { useLit } from "./context";
import type { Role } from "./squares";

const MARK = /\[([^\]|]+)\|(\w+)(?::([^\]]+))?\]/g;

interface Piece {
  text: string;
  role?: Role;
  block?: string;
}

/** "[query|query:q]" is the word "query" in the color of queries; it lights block q. */
export function pieces(text: string): Piece[] {
  const found: Piece[] = [];
  let end = 0;
  for (const match of text.matchAll(MARK)) {
    found.push({ text: text.slice(end, match.index) });
    found.push({ text: match[1], role: match[2] as Role, block: match[3] });
    end = match.index + match[0].length;
  }
  return [...found, { text: text.slice(end) }].filter((piece) => piece.text);
}

export function Words({ text }: { text: string }) {
  const lit = useLit();
  return (
    <>
      {pieces(text).map((piece, i) => {
        if (!piece.role) return piece.text;
        const { block } = piece;
        return (
          <mark
            key={i}
            class={`ink-${piece.role}`}
            onPointerEnter={() => block && (lit.value = block)}
            onPointerLeave={() => (lit.value = "")}
          >
            {piece.text}
          </mark>
        );
      })}
    </>
  );
}
