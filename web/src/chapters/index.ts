import type { Chapter } from "../types";

/** The chapters of part one, in order. */
export const chapters: Chapter[] = [];
