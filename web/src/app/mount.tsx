/** The one entry of the page, for its three shells: server, notebook, file. */
import { render } from "preact";
import { Store } from "../state/store";
import type { Transport } from "../types";
import { Session, SessionContext } from "./session";
import { Shell } from "./shell";

export interface InitialState {
  /** Where to begin, such as "#/view/map?layer=2&head=1". */
  hash?: string;
  /** Whether the state is kept in the address of the page. */
  bindUrl?: boolean;
}

/** Puts the page into an element; returns how to remove it. */
export function mount(element: Element, transport: Transport, initial: InitialState = {}): () => void {
  const state = new Store(initial.hash ?? "", initial.bindUrl ?? false);
  const session = new Session(transport, state);
  const closed = new AbortController();
  const stop = state.listen();
  render(
    <SessionContext.Provider value={session}>
      <Shell />
    </SessionContext.Provider>,
    element,
  );
  void session.open(closed.signal);
  return () => {
    closed.abort();
    stop();
    render(null, element);
  };
}
