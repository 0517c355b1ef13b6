/** Starts the page where its document asks for it; a notebook calls `render` of the default export instead. */
import "tokens.css";
import "./theme/page.css";
import "./app/stage.css";
import "./app/timeline.css";
import "./app/help.css";
import "./app/export-menu.css";
import "./theme/narrow.css";
import { mount } from "./app/mount";
import { CommTransport, type WidgetModel } from "./transport/comm";
import { HttpTransport } from "./transport/http";
import { InlineTransport } from "./transport/inline";
import type { Recording } from "./transport/recording";
import { StartingTransport } from "./transport/starting";
import type { Transport } from "./types";

type Config = { transport: "http"; recording?: Recording } | { transport: "inline"; recording: Recording };

function transportOf(config: Config): Transport {
  if (config.transport === "inline") return new InlineTransport(config.recording);
  const server = new HttpTransport();
  return config.recording ? new StartingTransport(config.recording, server) : server;
}

function start(): void {
  const config = document.getElementById("softlook-config");
  const element = document.getElementById("softlook");
  if (!config?.textContent || !element) return;
  removeToken();
  mount(element, transportOf(JSON.parse(config.textContent)), { hash: location.hash, bindUrl: true });
}

/** The one-time token of the link has been used: it does not stay in the address bar. */
function removeToken(): void {
  if (location.search.includes("token=")) history.replaceState(null, "", location.pathname + location.hash);
}

/** JupyterLab leaves the keys of an element with this attribute alone; its shortcuts ask the one that has the focus. */
function leaveKeysAlone({ target }: FocusEvent): void {
  (target as HTMLElement | SVGElement).dataset.lmSuppressShortcuts = "true";
}

/** Draws the page into the output of a notebook cell. */
function render({ model, el }: { model: WidgetModel; el: HTMLElement }): () => void {
  const transport = new CommTransport(model);
  const onState = (hash: string) => {
    if (model.get("hash") === hash) return;
    model.set("hash", hash);
    model.save_changes();
  };
  el.classList.add("softlook-widget");
  el.addEventListener("focusin", leaveKeysAlone);
  const unmount = mount(el, transport, { hash: String(model.get("hash") ?? ""), onState });
  return () => {
    el.removeEventListener("focusin", leaveKeysAlone);
    unmount();
    transport.close();
  };
}

if (typeof document !== "undefined") start();

export { mount };
export default { render };
