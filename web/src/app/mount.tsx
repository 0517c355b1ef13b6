/** The one entry of the page, for its three shells: server, notebook, file. */
import { effect } from "@preact/signals";
import { render } from "preact";
import { formatHash, Store } from "../state/store";
import type { Transport } from "../types";
import { Session, SessionContext } from "./session";
import { Shell } from "./shell";

export interface InitialState {
  /** Where to begin, such as "#/view/map?layer=2&head=1". */
  hash?: string;
  /** Whether the state is kept in the address of the page. */
  bindUrl?: boolean;
  /** Called with the hash whenever the state changes. */
  onState?: (hash: string) => void;
}

/** Puts the page into an element; returns how to remove it. */
export function mount(element: Element, transport: Transport, initial: InitialState = {}): () => void {
  const state = new Store(initial.hash ?? "", initial.bindUrl ?? false);
  const session = new Session(transport, state);
  const closed = new AbortController();
  const stop = state.listen();
  const stopState = effect(() => {
    const hash = formatHash(state.route.value);
    initial.onState?.(hash);
  });
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
    stopState();
    render(null, element);
  };
}
