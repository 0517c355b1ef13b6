import assert from "node:assert/strict";
import { test } from "node:test";
import strings from "../i18n/strings.json";
import constants from "./constants.json";
import { asAttention, relativeMap, toeplitzError } from "./convolution/numbers";
import { coldError, lookUp } from "./dictionary/numbers";
import { dotProduct } from "./dot/numbers";
import { multiHead } from "./heads/numbers";
import { chapters } from "./index";
import { compare } from "./linear/numbers";
import { changes, decode, masked, withChange } from "./masks/numbers";
import { matrixForm } from "./matrix/numbers";
import { chunks } from "./parts/formula";
import { normal, uniform } from "./parts/generator";
import { maxDifference, mean, sum, variance } from "./parts/math";
import { currentStep, progress } from "./parts/progress";
import { moved } from "./parts/tokens";
import { pieces } from "./parts/words";
import { permuted } from "./permutation/numbers";
import { rotary, sinusoidError } from "./positions/numbers";
import { attend, encode, SCORES } from "./recurrent/numbers";
import { draw, histogram } from "./scale/numbers";
import { softmaxSteps } from "./softmax/numbers";
import { predict, tokensOf } from "./tables/numbers";
import { stream } from "./transformer/numbers";

const TINY = 1e-12;

test("every chapter has its texts in both languages, one for each step", () => {
  assert.equal(chapters.length, 15);
  for (const { id, steps } of chapters) {
    const names = [
      "title",
      "constants",
      "model",
      "question",
      "answer",
      ...Array.from({ length: steps + 1 }, (_, k) => `${k}`),
    ];
    for (const name of names) {
      assert.ok(`c.${id}.${name}` in strings.en, `c.${id}.${name}`);
      assert.ok(`c.${id}.${name}` in strings.de, `c.${id}.${name}`);
    }
    assert.ok(!(`c.${id}.${steps + 1}` in strings.en), `${id} has a text for a step that does not exist`);
  }
});

test("a step happens once, in order, and at once without motion", () => {
  assert.deepEqual(
    [0, 0.25, 0.3, 1].map((t) => currentStep(t, 4)),
    [0, 1, 2, 4],
  );
  assert.deepEqual(
    [1, 2, 3].map((k) => progress(0.5, 4, k, false)),
    [1, 1, 0],
  );
  assert.deepEqual(
    [1, 2].map((k) => progress(0.3, 4, k, true)),
    [1, 1],
  );
  assert.ok(progress(0.3, 4, 2, false) > 0 && progress(0.3, 4, 2, false) < 1);
});

test("colored words name a role and a block", () => {
  assert.deepEqual(pieces("a [b|query:q] c"), [
    { text: "a " },
    { text: "b", role: "query", block: "q" },
    { text: " c" },
  ]);
});

test("a formula is split before = and +, but not inside of braces", () => {
  assert.deepEqual(chunks("y=\\frac{a+b}{c}+d"), ["y", "=\\frac{a+b}{c}", "+d"]);
});

test("the generator gives the same uniform and normal numbers every time", () => {
  const numbers = Array.from({ length: 20_000 }, (_, n) => normal(3, n));
  assert.equal(uniform(1, 0), uniform(1, 0));
  assert.notEqual(uniform(1, 0), uniform(2, 0));
  assert.ok(Math.abs(mean(numbers)) < 0.03 && Math.abs(variance(numbers) - 1) < 0.05);
});

test("dot products: by coordinates and by the angle", () => {
  for (const [query, key] of [
    [
      [2, 1],
      [1, 2],
    ],
    [
      [-1, 3],
      [2.5, 0.1],
    ],
    [
      [0, 0],
      [1, 1],
    ],
  ]) {
    const { score, byAngle } = dotProduct(query, key);
    assert.ok(Math.abs(score - byAngle) < TINY);
  }
  assert.equal(dotProduct([1, 0], [0, 1]).degrees, 90);
});

test("softmax: sum one, no change by a shift, all for the largest when cold, shared among ties", () => {
  for (const scores of [constants.softmax.scores, [1, 1, 0], [-300, 200]]) {
    const { sumError, shiftError, coldError: cold } = softmaxSteps(scores, 0.7, 3);
    assert.ok(sumError < TINY && shiftError < TINY && cold < TINY);
  }
});

test("the variance of dot products is d, and 1 after division by the square root of d", () => {
  const { dims, variances, products } = draw(1, 1000, constants.scale.dims);
  for (const [i, value] of variances.entries()) assert.ok(Math.abs(value / dims[i] - 1) < 3 * Math.sqrt(2 / 1000));
  assert.ok(Math.abs(sum(histogram(products[0], 48, 64)) - 1) < TINY);
});

test("a cold soft dictionary answers as a dictionary, a hot one with the mean", () => {
  const { keys, values } = constants.dictionary;
  assert.ok(coldError(keys, values, 1e-3) < TINY);
  assert.ok(Math.abs(lookUp([0, 0], keys, values, 1e9).answer - mean(values)) < 1e-6);
});

test("the matrix form equals the loops, with and without a mask", () => {
  const { input } = constants.sentence;
  for (const causal of [false, true]) assert.ok(matrixForm(input, input, input, causal).error < TINY);
});

test("concatenated heads times W^O equal the sum over heads, with any gates", () => {
  for (const gates of [[1], [1, 0.3], [0, 1, 0.5, 0.2]]) {
    assert.ok(multiHead(constants.sentence.input, constants.heads, gates).error < TINY);
  }
});

test("attention is equivariant to a new order until positions are added", () => {
  const { input, swap } = constants.permutation;
  assert.ok(permuted(input, swap, false).equivariance < TINY);
  assert.ok(permuted(input, swap, false).invariance < TINY);
  assert.ok(permuted(input, swap, true).equivariance > 0.01);
  assert.deepEqual(moved([0, 1, 2], 0, 2), [1, 2, 0]);
});

test("a layer is attention with one-hot heads; constant scores do not move", () => {
  const { input, weight, constant } = constants.linear;
  const numbers = compare([...input].reverse(), input, weight, constant);
  assert.ok(numbers.error < TINY && numbers.constantMoved < TINY && numbers.moved > 0.05);
});

test("a convolution is attention with one head for each offset", () => {
  const { input, kernel } = constants.convolution;
  assert.ok(asAttention(input, kernel).error < TINY);
  assert.ok(toeplitzError(relativeMap(8, kernel, 3)) < TINY);
});

test("changing the future does not change the past, and decoding gives the rows of the causal map", () => {
  const { input } = constants.permutation;
  const output = (x: number[][], kind: "none" | "causal") => masked(x, kind, constants.masks).output;
  const after = withChange(input, 2);
  assert.deepEqual(changes(output(input, "causal"), output(after, "causal")).slice(0, -1), [0, 0, 0, 0]);
  assert.ok(changes(output(input, "none"), output(after, "none"))[0] > 0.01);
  assert.ok(maxDifference(decode(input), output(input, "causal")) < TINY);
});

test("rotary and sinusoidal positions depend on distances alone", () => {
  const score = (shift: number) => rotary([1.5, 0.5], [1, 1.2], [3 + shift, 1 + shift], 0.5).score;
  assert.ok(Math.abs(score(50) - score(0)) < TINY);
  assert.ok(sinusoidError([3, 9], 77, 8) < TINY);
});

test("the context of a recurrent decoder lies between the states of its encoder", () => {
  const { embeddings, recurrent, input, state } = constants.recurrent;
  const states = encode(embeddings, recurrent, input);
  for (const name of SCORES) {
    const { weights, outside } = attend(name, state, states, constants.recurrent);
    assert.ok(Math.abs(sum(weights) - 1) < TINY && outside < TINY);
  }
});

test("pre-norm keeps the input as a summand, post-norm keeps rows normed", () => {
  assert.ok(stream(constants.transformer, 4, true).error < TINY);
  assert.ok(stream(constants.transformer, 4, false).error < 1e-3);
});

test("the order of columns does not change a prediction", () => {
  const tokens = tokensOf([38, 40], [1, 0], constants.tables.numbers, [3, 3], constants.tables);
  const logit = (order: number[]) =>
    predict(
      order.map((c) => tokens[c]),
      constants.tables,
    ).logit;
  assert.ok(Math.abs(logit([0, 1, 2, 3]) - logit([3, 1, 0, 2])) < TINY);
});
