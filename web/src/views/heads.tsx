/** All layers and heads at once: a small map of each, a click opens one. */
import { useLayoutEffect, useRef } from "preact/hooks";
import { fill, strings } from "../i18n";
import { channels, weightColor } from "../theme/colors";
import { theme } from "../theme/theme";
import type { AttentionInfo, Frame, ViewProps } from "../types";
import { overviewSize } from "./geometry/overview";
import { useAnswer } from "./shared/answer";
import { Badges } from "./shared/badges";
import { Ready } from "./shared/notice";
import { endpoint } from "./shared/selection";

const SIZE = 64;

export function Heads({ trace, transport, state }: ViewProps) {
  const s = strings();
  const answer = useAnswer(trace.id, (signal) => transport.frame(endpoint(trace, "overview"), { size: SIZE }, signal));
  return (
    <section class="v-view" aria-label={s["v.heads"]}>
      <Badges trace={trace} statistic={answer.value?.statistic} />
      <p class="v-hint">{s["v.heads.hint"]}</p>
      <Ready answer={answer}>
        {(frame) => (
          <div class="v-overview" onKeyDown={moveFocus}>
            {trace.attentions.map((attention, index) => (
              <Layer
                key={attention.path}
                attention={attention}
                frame={frame}
                first={headsBefore(trace.attentions, index)}
                onOpen={(head) => state.go("view", "head", { attention: attention.path, head })}
              />
            ))}
          </div>
        )}
      </Ready>
    </section>
  );
}

const headsBefore = (attentions: AttentionInfo[], index: number): number =>
  attentions.slice(0, index).reduce((sum, { heads }) => sum + heads, 0);

interface LayerProps {
  attention: AttentionInfo;
  frame: Frame;
  first: number;
  onOpen: (head: number) => void;
}

function Layer({ attention, frame, first, onOpen }: LayerProps) {
  const s = strings();
  return (
    <fieldset class="v-layer">
      <legend>
        {attention.path} <small>{s[`v.kind.${attention.kind}`]}</small>
      </legend>
      {Array.from({ length: attention.heads }, (_, head) => (
        <button
          key={head}
          type="button"
          class="v-thumbnail"
          tabIndex={first + head === 0 ? 0 : -1}
          aria-label={fill(s["v.heads.open"], { path: attention.path, head })}
          onClick={() => onOpen(head)}
        >
          <Thumbnail frame={frame} map={first + head} attention={attention} />
          <span>{head}</span>
        </button>
      ))}
    </fieldset>
  );
}

function Thumbnail({ frame, map, attention }: { frame: Frame; map: number; attention: AttentionInfo }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const { rows, columns } = overviewSize(attention.rows, attention.columns, SIZE);
  const shown = theme.value;
  useLayoutEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context) return;
    const image = context.createImageData(columns, rows);
    const palette = Array.from({ length: 256 }, (_, byte) =>
      channels(weightColor(byte / 255, shown)).map((part) => Math.round(255 * part)),
    );
    const start = map * frame.shape[1] * frame.shape[2];
    for (let i = 0; i < rows * columns; i++) {
      const byte = frame.data[start + Math.floor(i / columns) * frame.shape[2] + (i % columns)];
      image.data.set([...palette[byte], 255], 4 * i);
    }
    context.putImageData(image, 0, 0);
  }, [frame, map, rows, columns, shown]);
  return <canvas ref={canvas} width={columns} height={rows} />;
}

/** Arrow keys move between the small maps: left and right in a layer, up and down between layers. */
function moveFocus(event: KeyboardEvent & { currentTarget: HTMLElement }) {
  const layers = [...event.currentTarget.querySelectorAll("fieldset")].map((layer) => [
    ...layer.querySelectorAll("button"),
  ]);
  const layer = layers.findIndex((buttons) => buttons.includes(document.activeElement as HTMLButtonElement));
  if (layer < 0) return;
  const head = layers[layer].indexOf(document.activeElement as HTMLButtonElement);
  const [down, right] = MOVES[event.key] ?? [0, 0];
  const buttons = layers[layer + down];
  if ((!down && !right) || !buttons) return;
  event.preventDefault();
  event.stopPropagation();
  buttons[Math.max(0, Math.min(buttons.length - 1, head + right))]?.focus();
}

const MOVES: Record<string, [number, number]> = {
  ArrowDown: [1, 0],
  ArrowUp: [-1, 0],
  ArrowRight: [0, 1],
  ArrowLeft: [0, -1],
};
