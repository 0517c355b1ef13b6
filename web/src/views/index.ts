import type { View } from "../types";

/** The views of part two, in order. */
export const views: View[] = [];
