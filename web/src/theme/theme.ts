/** Light or dark: chosen, or as the system says. */
import { computed, signal } from "@preact/signals";

export type Theme = "light" | "dark";
export type ThemeChoice = Theme | "auto";

const KEY = "softlook-theme";
const CHOICES: ThemeChoice[] = ["auto", "light", "dark"];

function remembered(): ThemeChoice {
  try {
    return CHOICES.find((choice) => choice === localStorage.getItem(KEY)) ?? "auto";
  } catch {
    return "auto"; // Pages from file:// may have no storage.
  }
}

function follow(query: string): () => boolean {
  if (typeof matchMedia === "undefined") return () => false;
  const list = matchMedia(query);
  const state = signal(list.matches);
  list.addEventListener("change", (event) => {
    state.value = event.matches;
  });
  return () => state.value;
}

const systemIsDark = follow("(prefers-color-scheme: dark)");
const motionIsReduced = follow("(prefers-reduced-motion: reduce)");

export const themeChoice = signal<ThemeChoice>(remembered());
export const theme = computed<Theme>(() =>
  themeChoice.value === "auto" ? (systemIsDark() ? "dark" : "light") : themeChoice.value,
);
export const reducedMotion = computed(motionIsReduced);

/** Auto, light, dark, auto, ... */
export function nextTheme(): void {
  const choice = CHOICES[(CHOICES.indexOf(themeChoice.value) + 1) % CHOICES.length];
  themeChoice.value = choice;
  try {
    localStorage.setItem(KEY, choice);
  } catch {
    // The theme then holds until the page is closed.
  }
}
