/** Colors of tokens.json and scales made of them, as #rrggbb; the figures of the library use the same formulas. */
import tokens from "../../../src/softlook/lens/figures/tokens.json";
import { type Theme, theme } from "./theme";

export type ColorName = keyof typeof tokens.colors.light;
/** What a block of numbers is: its hue. */
export type Role = "query" | "key" | "value" | "output" | "input" | "weight";

type Lab = [number, number, number];

/** A color of the current theme. */
export function color(name: ColorName, of: Theme = theme.value): string {
  return tokens.colors[of][name];
}

/** The color of a magnitude from 0 (surface) to 1 (the largest), in the hue of a role. */
export function tint(role: Role, fraction: number, of: Theme = theme.value): string {
  const share = clamp(fraction);
  if (role === "weight") return weightColor(share, of);
  const [surface, middle, ink] = (["surface", role, `${role}-ink`] as ColorName[]).map((name) =>
    labOf(color(name, of)),
  );
  const turn = 0.75;
  if (share <= turn) return hexOf(mix(surface, middle, share / turn));
  return hexOf(mix(middle, ink, (0.5 * (share - turn)) / (1 - turn)));
}

/** The color of a weight, from 0 to 1 of the scale: equal steps look equal. */
export function weightColor(fraction: number, of: Theme = theme.value): string {
  const f = clamp(fraction);
  if (of === "dark") return oklch(0.26 + 0.6 * f, 0.02 + 0.28 * f * (1 - f) + 0.04 * f);
  return oklch(0.97 - 0.64 * f, 0.01 + 0.2 * f - 0.055 * f * f);
}

/** The color of a signed number from -1 (orange) over 0 (surface) to 1 (blue). */
export function divergingColor(fraction: number, of: Theme = theme.value): string {
  return tint(fraction < 0 ? "key" : "query", Math.abs(fraction), of);
}

/** Black or white, whichever has more contrast on a color. */
export function textOn(background: string): string {
  return contrast(background, "#000000") > contrast(background, "#ffffff") ? "#000000" : "#ffffff";
}

/** The WCAG contrast ratio of two colors, from 1 to 21. */
export function contrast(one: string, other: string): number {
  const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
}

/** Red, green and blue of #rrggbb, from 0 to 1. */
export function channels(hex: string): [number, number, number] {
  const value = Number.parseInt(hex.slice(1), 16);
  return [(value >> 16) / 255, ((value >> 8) & 255) / 255, (value & 255) / 255];
}

function clamp(fraction: number): number {
  return Math.min(Math.max(Number.isFinite(fraction) ? fraction : 0, 0), 1);
}

function luminance(hex: string): number {
  const [red, green, blue] = channels(hex).map(linear);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function linear(channel: number): number {
  return channel <= 0.04045 ? channel / 12.92 : ((channel + 0.055) / 1.055) ** 2.4;
}

function mix(one: Lab, other: Lab, share: number): Lab {
  return one.map((x, i) => x + share * (other[i] - x)) as Lab;
}

function oklch(lightness: number, chroma: number, hue = (280 * Math.PI) / 180): string {
  return hexOf([lightness, chroma * Math.cos(hue), chroma * Math.sin(hue)]);
}

function hexOf([lightness, a, b]: Lab): string {
  const long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const short = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const red = 4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short;
  const green = -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short;
  const blue = -0.0041960863 * long - 0.7034186147 * medium + 1.707614701 * short;
  return `#${[red, green, blue].map(byte).join("")}`;
}

function byte(channel: number): string {
  const value = clamp(channel);
  const encoded = value <= 0.0031308 ? 12.92 * value : 1.055 * value ** (1 / 2.4) - 0.055;
  return Math.round(encoded * 255)
    .toString(16)
    .padStart(2, "0");
}

function labOf(hex: string): Lab {
  const [red, green, blue] = channels(hex).map(linear);
  const long = Math.cbrt(0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue);
  const medium = Math.cbrt(0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue);
  const short = Math.cbrt(0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue);
  return [
    0.2104542553 * long + 0.793617785 * medium - 0.0040720468 * short,
    1.9779984951 * long - 2.428592205 * medium + 0.4505937099 * short,
    0.0259040371 * long + 0.7827717662 * medium - 0.808675766 * short,
  ];
}
