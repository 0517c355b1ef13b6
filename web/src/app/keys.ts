/** The keys of the page. A part that uses a key stops it, so that it never does two things. */
import type { Signal } from "@preact/signals";
import { nextTheme } from "../theme/theme";
import { goTo, neighborOf, pageOf } from "./pages";
import type { Session } from "./session";

/** Where keys are heard: a page of its own hears all, a widget in a notebook those that are pressed inside of it. */
export function keyScope(element: Element | null): Document | HTMLElement | null {
  return element?.closest(".softlook-page") ? document : (element?.closest<HTMLElement>(".softlook") ?? null);
}

/** True where a key belongs to the control that has the focus: arrows to sliders and grids, space also to buttons. */
export function isForControl(event: KeyboardEvent): boolean {
  const owners = "input, textarea, select, [role=slider], [role=grid], [role=application], [data-keys]";
  const selector = event.key === " " ? `${owners}, button, summary` : owners;
  return event.target instanceof Element && event.target.closest(selector) !== null;
}

/** True where letters are typed, so that they are no commands. */
function takesText(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  if (target instanceof HTMLInputElement) return !["range", "checkbox", "radio", "button"].includes(target.type);
  return target.isContentEditable || target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement;
}

function undoOrRedo(event: KeyboardEvent, { state }: Session): boolean {
  if (!(event.ctrlKey || event.metaKey) || event.altKey) return false;
  const key = event.key.toLowerCase();
  if (key === "z" && !event.shiftKey) state.undo();
  else if (key === "y" || key === "z") state.redo();
  else return false;
  return true;
}

/** Keys that hold on the whole page; those of the timeline are in stage.tsx. */
export function handleKeys(event: KeyboardEvent, session: Session, help: Signal<boolean>): void {
  if (event.defaultPrevented || takesText(event.target)) return;
  const page = pageOf(session.state.route.peek());
  if (undoOrRedo(event, session)) event.preventDefault();
  else if (event.ctrlKey || event.metaKey || event.altKey) return;
  else if (event.key === "Escape") help.value = false;
  else if (event.key === "?") help.value = !help.peek();
  else if (event.key === "T") nextTheme();
  else if (page && (event.key === "PageDown" || event.key === "n")) goTo(session.state, neighborOf(page, 1));
  else if (page && (event.key === "PageUp" || event.key === "p")) goTo(session.state, neighborOf(page, -1));
  else return;
  event.preventDefault();
}
