/** Parts of a long text: a window around a token, and groups of consecutive tokens. */

export interface Part {
  first: number;
  /** One after the last token. */
  last: number;
}

/** At most `size` tokens around one. */
export function windowAround(token: number, length: number, size: number): Part {
  const first = Math.max(0, Math.min(token - Math.floor(size / 2), length - size));
  return { first, last: Math.min(first + size, length) };
}

/** At most `count` groups of one size that cover the text. */
export function groupsOf(length: number, count: number): Part[] {
  const size = Math.max(1, Math.ceil(length / count));
  return Array.from({ length: Math.ceil(length / size) }, (_, group) => ({
    first: group * size,
    last: Math.min((group + 1) * size, length),
  }));
}
