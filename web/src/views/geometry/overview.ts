/** The cells that a map fills in an overview of at most `size` x `size` cells: maps of other sizes share the frame. */
export function overviewSize(rows: number, columns: number, size: number): { rows: number; columns: number } {
  const cells = (length: number) => Math.ceil(length / Math.max(1, Math.ceil(length / size)));
  return { rows: cells(rows), columns: cells(columns) };
}
