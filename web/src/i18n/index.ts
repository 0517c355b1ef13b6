/** Texts of the page. A key that does not exist is a type error; a language without a key fails the build. */
import { signal } from "@preact/signals";
import texts from "./strings.json";

export type Language = "en" | "de";
export type Strings = typeof texts.en;

const STRINGS: Record<Language, Strings> = texts;

const KEY = "softlook-language";

function remembered(): Language {
  try {
    const saved = localStorage.getItem(KEY);
    if (saved === "en" || saved === "de") return saved;
  } catch {
    // Pages from file:// may have no storage.
  }
  return typeof navigator !== "undefined" && navigator.language.startsWith("de") ? "de" : "en";
}

/** The language of the page. */
export const language = signal<Language>(remembered());

export function setLanguage(value: Language): void {
  language.value = value;
  try {
    localStorage.setItem(KEY, value);
  } catch {
    // The language then holds until the page is closed.
  }
}

/** The texts of a language. */
export function stringsOf(value: Language): Strings {
  return STRINGS[value];
}

/** The texts of the current language: a component that calls it is drawn again when the language changes. */
export function strings(): Strings {
  return STRINGS[language.value];
}

/** Puts values into the {names} of a text: fill("{n} tokens", { n: 3 }) is "3 tokens". */
export function fill(text: string, values: Record<string, string | number>): string {
  return text.replace(/\{(\w+)\}/g, (whole, name: string) => (name in values ? String(values[name]) : whole));
}

/** A number in the notation of the current language. */
export function formatNumber(value: number, digits = 2): string {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "∞" : "−∞";
  return value
    .toLocaleString(language.value, { maximumFractionDigits: digits, minimumFractionDigits: digits })
    .replace("-", "−");
}

const LEAST_PERCENT = 0.001;

/** A weight as a percentage: 0.4123 is "41 %", 0.0004 is "0.04 %", 0.997 is "99.7 %", and 1e-9 is "< 0.001 %". */
export function formatPercent(weight: number): string {
  const percent = weight * 100;
  const isRound = percent === 0 || (percent >= 9.5 && percent < 99.5) || percent >= 99.95;
  const digits = isRound ? 0 : percent >= 99.5 ? 1 : percent >= 0.095 ? 1 : percent >= 0.0095 ? 2 : 3;
  const isTiny = percent > 0 && percent < LEAST_PERCENT;
  return `${isTiny ? "< " : ""}${(isTiny ? LEAST_PERCENT : percent).toLocaleString(language.value, { maximumFractionDigits: digits })} %`;
}
