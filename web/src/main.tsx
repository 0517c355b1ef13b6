/** Starts the page where its document asks for it; a notebook calls `render` of the default export instead. */
import "tokens.css";
import "./theme/page.css";
import { mount } from "./app/mount";
import { HttpTransport } from "./transport/http";
import type { Transport } from "./types";

interface Config {
  transport: "http" | "inline";
}

function transportOf(config: Config): Transport {
  if (config.transport === "http") return new HttpTransport();
  throw new Error(`expected the transport http or inline, got ${config.transport}`);
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

if (typeof document !== "undefined") start();

export { mount };
