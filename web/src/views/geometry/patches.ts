/** The square of an image's patches: tokens before them, such as the class token, are extra. Null if it is no square. */
export function patchLayout(tokens: number): { side: number; extra: number } | null {
  const side = Math.floor(Math.sqrt(tokens));
  const extra = tokens - side * side;
  return side > 0 && extra <= MOST_EXTRA ? { side, extra } : null;
}

/** A class token, a distillation token, and up to four registers. */
const MOST_EXTRA = 6;
