/** Where a chapter of n steps is. Step k (from 1) happens between t = (k − 1)/n and t = k/n. */

const EPSILON = 1e-6;

/** How much of step k has happened, from 0 to 1; without motion it has happened or not. */
export function progress(t: number, steps: number, k: number, reducedMotion: boolean): number {
  const share = Math.min(1, Math.max(0, t * steps - (k - 1)));
  if (reducedMotion) return share > EPSILON ? 1 : 0;
  return share < EPSILON ? 0 : share > 1 - EPSILON ? 1 : share * share * (3 - 2 * share);
}

/** The step that is shown: 0 at the beginning. */
export const currentStep = (t: number, steps: number): number => Math.max(0, Math.ceil(t * steps - EPSILON));
