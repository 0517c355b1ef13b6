/** What every part of a chapter needs to know. */
import type { Signal } from "@preact/signals";
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import { stringsOf } from "../../i18n";
import type { ChapterProps } from "../../types";
import { currentStep, progress } from "./progress";

export interface ChapterContext {
  id: string;
  steps: number;
  props: ChapterProps;
  /** The block that a word of the text points at. */
  lit: Signal<string>;
  /** The block that the pointer is on: its words are emphasized. */
  pointed: Signal<string>;
}

export const Context = createContext<ChapterContext | null>(null);

function useChapter(): ChapterContext {
  const context = useContext(Context);
  if (!context) throw new Error("a part of a chapter stands outside a Frame");
  return context;
}

export const useProps = (): ChapterProps => useChapter().props;
export const useLit = (): Signal<string> => useChapter().lit;
export const usePointed = (): Signal<string> => useChapter().pointed;

/** The texts of this chapter: text("title") is "c.<id>.title"; parts share the texts "c.<name>". */
export function useText(): (name: string) => string {
  const { id, props } = useChapter();
  const strings: Record<string, string> = stringsOf(props.language);
  return (name) => strings[`c.${id}.${name}`] ?? strings[`c.${name}`] ?? name;
}

/** How much of step k has happened. */
export function useProgress(): (k: number) => number {
  const { steps, props } = useChapter();
  const t = props.t.value;
  return (k) => progress(t, steps, k, props.reducedMotion);
}

export function useStep(): number {
  const { steps, props } = useChapter();
  return currentStep(props.t.value, steps);
}
