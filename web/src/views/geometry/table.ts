/** Sort order of a table with missing values. */

export interface Sorting {
  column: string;
  descending: boolean;
}

export type Cell = number | string | null;

/** Rows in order of a column; rows without a value come last in both directions, equal rows keep their order. */
export function sortRows<R>(rows: R[], cell: (row: R) => Cell, descending: boolean): R[] {
  const missing = (value: Cell) => value === null || (typeof value === "number" && Number.isNaN(value));
  const sign = descending ? -1 : 1;
  return [...rows].sort((one, other) => {
    const [a, b] = [cell(one), cell(other)];
    if (missing(a) || missing(b)) return Number(missing(a)) - Number(missing(b));
    if (typeof a === "number" && typeof b === "number") return sign * (a - b);
    return sign * String(a).localeCompare(String(b), "en");
  });
}

/** A click on a header: numbers begin with the largest, a second click turns the order round. */
export const nextSorting = (sorting: Sorting | null, column: string): Sorting => ({
  column,
  descending: sorting?.column === column ? !sorting.descending : true,
});
