/** All layers and heads at once: a small map of each, a click opens one. */
import { useLayoutEffect, useRef } from "preact/hooks";
import { fill, formatNumber, strings } from "../i18n";
import { scaleOf, shareOf } from "../parts/map-scale";
import { weightColor } from "../theme/colors";
import { theme } from "../theme/theme";
import { weightOfByte } from "../transport/frame";
import type { AttentionInfo, Frame, ViewProps } from "../types";
import type { ColorScale } from "../webgl/renderer";
import { overviewSize } from "./geometry/overview";
import { useAnswer } from "./shared/answer";
import { Badges } from "./shared/badges";
import { Controls, Segments } from "./shared/controls";
import { ScaleLegend } from "./shared/legend";
import { Ready } from "./shared/notice";
import { endpoint } from "./shared/selection";

const SIZE = 64;
const SUPERSCRIPT = [..."⁰¹²³⁴⁵⁶"];

export function Heads({ trace, transport, state }: ViewProps) {
  const s = strings();
  const columns = Math.max(...trace.attentions.map((attention) => attention.columns), 1);
  const most = Math.max(...trace.attentions.map(({ heads }) => heads), 1);
  const scale = scaleOf(state, theme.value, columns);
  const answer = useAnswer(trace.id, (signal) => transport.frame(endpoint(trace, "overview"), { size: SIZE }, signal));
  return (
    <section class="v-view" aria-label={s["v.heads"]}>
      <Badges trace={trace} statistic={answer.value?.statistic} />
      <p class="v-hint">{s["v.heads.hint"]}</p>
      <Controls>
        <Segments
          label={s.map_scale}
          value={scale.log ? "log" : "linear"}
          options={[
            { value: "log", text: s.map_log },
            { value: "linear", text: s.map_linear },
          ]}
          onChange={(value) => state.set("scale", value)}
        />
        <ScaleLegend
          color={weightColor}
          texts={
            scale.log
              ? [`10⁻${SUPERSCRIPT[scale.decades]}`, "1"]
              : ["0", formatNumber(scale.full, scale.full < 0.1 ? 3 : 1)]
          }
        />
      </Controls>
      <Ready answer={answer}>
        {(frame) => (
          <div class="v-overview" style={{ "--heads": most }} onKeyDown={moveFocus}>
            {trace.attentions.map((attention, index) => (
              <Layer
                key={attention.path}
                attention={attention}
                frame={frame}
                scale={scale}
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
  scale: ColorScale;
  first: number;
  onOpen: (head: number) => void;
}

function Layer({ attention, frame, scale, first, onOpen }: LayerProps) {
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
          <Thumbnail frame={frame} map={first + head} attention={attention} scale={scale} />
          <span>{head}</span>
        </button>
      ))}
    </fieldset>
  );
}

interface ThumbnailProps {
  frame: Frame;
  map: number;
  attention: AttentionInfo;
  scale: ColorScale;
}

function Thumbnail({ frame, map, attention, scale }: ThumbnailProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const { rows, columns } = overviewSize(attention.rows, attention.columns, SIZE);
  const { log, decades, palette } = scale;
  useLayoutEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context) return;
    const image = context.createImageData(columns, rows);
    const start = map * frame.shape[1] * frame.shape[2];
    for (let i = 0; i < rows * columns; i++) {
      const byte = frame.data[start + Math.floor(i / columns) * frame.shape[2] + (i % columns)];
      const color = 4 * Math.round(255 * shareOf(weightOfByte(frame, byte), scale));
      image.data.set(palette.subarray(color, color + 4), 4 * i);
    }
    context.putImageData(image, 0, 0);
  }, [frame, map, rows, columns, log, decades, palette]);
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
