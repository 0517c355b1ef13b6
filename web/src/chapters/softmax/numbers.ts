/** Softmax with a temperature, and what does not change it. */
import { maxDifference, softmax, sum, type Vector } from "../parts/math";

const COLD = 1e-4;

export function softmaxSteps(scores: Vector, temperature: number, shift: number) {
  const shifted = scores.map((score) => score + shift);
  const divided = shifted.map((score) => score / temperature);
  const powers = divided.map(Math.exp);
  const weights = softmax(shifted, temperature);
  const top = Math.max(...scores);
  const winners = scores.map((score) => (score === top ? 1 : 0));
  const share = winners.map((value) => value / sum(winners));
  return {
    shifted,
    divided,
    powers,
    total: sum(powers),
    weights,
    sumError: Math.abs(sum(weights) - 1),
    shiftError: maxDifference([weights], [softmax(scores, temperature)]),
    coldError: maxDifference([softmax(scores, COLD)], [share]),
  };
}
