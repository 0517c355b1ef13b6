/** How the weights of a map become colors, as the state says. */
import type { Store } from "../state/store";
import { channels, color, weightColor } from "../theme/colors";
import type { Theme } from "../theme/theme";
import type { ColorScale } from "../webgl/renderer";

const palettes = new Map<Theme, Uint8Array>();

/** 256 colors from weight 0 to the largest, as bytes. */
export function paletteOf(theme: Theme): Uint8Array {
  const made = palettes.get(theme);
  if (made) return made;
  const palette = new Uint8Array(4 * 256);
  for (let step = 0; step < 256; step++) {
    const bytes = channels(weightColor(step / 255, theme)).map((channel) => Math.round(255 * channel));
    palette.set([...bytes, 255], 4 * step);
  }
  palettes.set(theme, palette);
  return palette;
}

/** Maps of at most this many tokens are squares. */
export const SQUARES = 48;
const LONG = 4096;

/** The scale of the state. Otherwise squares are linear, longer maps logarithmic, and long ones reach further down. */
export function scaleOf(state: Store, theme: Theme, columns: number): ColorScale {
  const small = columns <= SQUARES;
  const chosen = state.get("scale");
  return {
    log: chosen === undefined ? !small : chosen === "log",
    decades: Math.min(Math.max(state.number("decades", columns > LONG ? 5 : 4), 1), 6),
    full: 2 ** -Math.min(Math.max(state.number("gain", 0), 0), 10),
    palette: paletteOf(theme),
    empty: channels(color("paper", theme)),
  };
}

/** The place of a weight on the scale, from 0 to 1. */
export function shareOf(weight: number, scale: ColorScale): number {
  if (!(weight > 0)) return 0;
  const share = scale.log ? 1 + Math.log10(weight) / scale.decades : weight / scale.full;
  return Math.min(Math.max(share, 0), 1);
}
