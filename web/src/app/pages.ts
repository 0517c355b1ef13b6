/** The order of chapters and views, for navigation. */
import { chapters } from "../chapters";
import type { Route, Store } from "../state/store";
import type { TraceInfo } from "../types";
import { views } from "../views";

export interface Page {
  kind: "chapter" | "view";
  id: string;
}

/** What the address shows: the start of the page is its first view, or else its first chapter. */
export function pageOf(route: Route): Page | null {
  if (route.kind !== "start") return { kind: route.kind, id: route.id };
  const [view] = views;
  if (view) return { kind: "view", id: view.id };
  return chapters[0] ? { kind: "chapter", id: chapters[0].id } : null;
}

/** A view is offered if the trace or its model has what it needs: a capability, cross-attention, or a task. */
export function isOffered(needs: string[], trace: TraceInfo | null, everywhere: string[]): boolean {
  return needs.every((need) => {
    if (need === "cross") return trace?.attentions.some(({ kind }) => kind === "cross");
    return need === trace?.task || trace?.capabilities.includes(need) || everywhere.includes(need);
  });
}

/** The chapter or view that comes `by` places after a page. */
export function neighborOf(page: Page, by: number): Page | null {
  const ids = (page.kind === "chapter" ? chapters : views).map(({ id }) => id);
  const id = ids[ids.indexOf(page.id) + by];
  return id === undefined ? null : { kind: page.kind, id };
}

export function goTo(state: Store, page: Page | null): void {
  if (page) state.go(page.kind, page.id);
}
