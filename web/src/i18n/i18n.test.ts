import assert from "node:assert/strict";
import { test } from "node:test";
import { fill, formatNumber, formatPercent, setLanguage } from ".";

test("percentages have as many digits as they need", () => {
  setLanguage("en");
  const shown = [1, 0.99961, 0.997, 0.4123, 0.0512, 0.0004, 1e-9, 0].map(formatPercent);
  assert.deepEqual(shown, ["100 %", "100 %", "99.7 %", "41 %", "5.1 %", "0.04 %", "< 0.001 %", "0 %"]);
});

test("numbers are written as the language writes them", () => {
  setLanguage("de");
  assert.equal(formatNumber(-1234.5, 1), "−1.234,5");
  assert.equal(formatPercent(0.055), "5,5 %");
  setLanguage("en");
  assert.equal(formatNumber(Number.NEGATIVE_INFINITY), "−∞");
});

test("values go where their names are, and other braces stay", () => {
  assert.equal(fill("{n} of {all} {x}", { n: 1, all: "{n}" }), "1 of {n} {x}");
});
