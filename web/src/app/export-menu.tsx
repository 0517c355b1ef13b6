/** Saves the picture of the stage as SVG or PNG, or shows the Python lines that make it. */
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { strings } from "../i18n";
import { Icon } from "../parts/Icon";
import { pythonLines } from "./python-lines";
import { useSession } from "./session";
import { pngOf, svgOf, textOf } from "./svg-export";

export function ExportMenu({ name }: { name: string }) {
  const s = strings();
  const open = useSignal(false);
  const python = useSignal("");
  const failure = useSignal("");
  const root = useRef<HTMLDivElement>(null);
  const session = useSession();
  const lines = () =>
    pythonLines({
      route: session.state.route.value,
      name,
      trace: session.trace.value,
      source: session.info.value?.source ?? "",
    });

  useEffect(() => {
    if (!open.value) return;
    const close = (event: Event) => {
      if (!root.current?.contains(event.target as Node)) open.value = false;
    };
    document.addEventListener("pointerdown", close);
    return () => document.removeEventListener("pointerdown", close);
  }, [open.value]);

  const save = async (kind: "svg" | "png") => {
    const stage = root.current?.closest("article")?.querySelector<HTMLElement>(".page-body");
    if (!stage) return;
    failure.value = "";
    try {
      const svg = svgOf(stage);
      const blob = kind === "svg" ? new Blob([textOf(svg)], { type: "image/svg+xml" }) : await pngOf(svg);
      download(blob, `softlook-${name}.${kind}`);
      open.value = false;
    } catch (error) {
      failure.value = (error as Error).message;
    }
  };
  return (
    <div
      class="export"
      ref={root}
      onKeyDown={(event) => {
        if (event.key !== "Escape" || !open.value) return;
        open.value = false;
        root.current?.querySelector("button")?.focus();
        event.stopPropagation();
      }}
    >
      <button
        type="button"
        class="button quiet"
        aria-label={s.export}
        aria-expanded={open.value}
        onClick={() => {
          open.value = !open.value;
          python.value = "";
        }}
      >
        <Icon name="export" /> <span>{s.export}</span>
      </button>
      {open.value && (
        <div class="export-list">
          <button type="button" onClick={() => save("svg")}>
            {s.export_svg}
          </button>
          <button type="button" onClick={() => save("png")}>
            {s.export_png}
          </button>
          <button type="button" onClick={() => (python.value = lines())}>
            {s.export_python}
          </button>
          {python.value && <Lines text={python.value} />}
          {failure.value && (
            <p class="failure" role="alert">
              {failure.value}
            </p>
          )}
        </div>
      )}
    </div>
  );
}

function Lines({ text }: { text: string }) {
  const s = strings();
  const copied = useSignal(false);
  return (
    <div class="lines">
      <pre tabIndex={0}>{text}</pre>
      <button
        type="button"
        onClick={async () => {
          await navigator.clipboard?.writeText(text).catch(() => {});
          copied.value = true;
        }}
      >
        {copied.value ? s.copied : s.copy}
      </button>
    </div>
  );
}

function download(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
