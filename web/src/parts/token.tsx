/** A token as text: spaces, ends of lines and control characters are visible; nothing of it is ever markup. */

const NAMES: Record<string, string> = { " ": "␣", "\n": "↵", "\r": "␍", "\t": "⇥", Ġ: "␣", Ċ: "↵", "▁": "␣" };
const INVISIBLE = /[ \n\r\tĠĊ▁\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u;
const LONGEST = 40;

interface Piece {
  text: string;
  mark: boolean;
}

/** Splits a token into text and marks for what cannot be seen. */
export function piecesOf(token: string): Piece[] {
  const pieces: Piece[] = [];
  for (const letter of shorten(token, LONGEST)) {
    const mark = INVISIBLE.test(letter);
    const text = mark ? (NAMES[letter] ?? `⟨${letter.codePointAt(0)!.toString(16)}⟩`) : letter;
    const last = pieces.at(-1);
    if (last && last.mark === mark) last.text += text;
    else pieces.push({ text, mark });
  }
  return pieces.length ? pieces : [{ text: "∅", mark: true }];
}

/** A token as one line of plain text, for labels and sentences. */
export function tokenLabel(token: string, longest = LONGEST): string {
  const text = piecesOf(token.replace(/^[ Ġ▁](?=\S)/u, ""))
    .map((piece) => piece.text)
    .join("");
  return shorten(text, longest);
}

function shorten(text: string, longest: number): string {
  const letters = Array.from(text);
  return letters.length <= longest ? text : `${letters.slice(0, longest - 1).join("")}…`;
}

export function TokenText({ token }: { token: string }) {
  return (
    <bdi class="token">
      {piecesOf(token).map(({ text, mark }, index) =>
        mark ? (
          <span key={index} class="invisible">
            {text}
          </span>
        ) : (
          text
        ),
      )}
    </bdi>
  );
}
