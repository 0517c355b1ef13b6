/** What a map shows: the weight, the weight times the norm of the value, or the share in the output. */
export const KINDS = ["weights", "value_weighted", "contribution"] as const;
export type Kind = (typeof KINDS)[number];
