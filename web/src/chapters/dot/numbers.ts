/** The dot product of two vectors of the plane, in two ways. */
import { dot, norm, times, type Vector } from "../parts/math";

export function dotProduct(query: Vector, key: Vector) {
  const products = query.map((value, i) => value * key[i]);
  const score = dot(query, key);
  const angle = Math.atan2(query[1], query[0]) - Math.atan2(key[1], key[0]);
  const byAngle = norm(query) * norm(key) * Math.cos(angle);
  const length = dot(key, key);
  /** The shadow of the query on the key. */
  const shadow = length > 0 ? times(key, score / length) : [0, 0];
  const degrees = Math.abs((((angle * 180) / Math.PI + 540) % 360) - 180);
  return { products, score, byAngle, shadow, degrees, lengths: [norm(query), norm(key)] };
}
