/** The controls above a map: scale, contrast, what a pixel shows, zoom; and its legend and badges. */
import { fill, formatNumber, strings } from "../i18n";
import type { Store } from "../state/store";
import { weightColor } from "../theme/colors";
import { theme } from "../theme/theme";
import type { Statistic, TraceInfo } from "../types";
import { Icon } from "./Icon";
import { scaleOf } from "./map-scale";

interface Props {
  trace: TraceInfo;
  state: Store;
  small: boolean;
  columns: number;
  statistic: Statistic;
  loading: boolean;
  onZoom: (factor: number) => void;
}

export function MapControls({ trace, state, small, columns, statistic, loading, onZoom }: Props) {
  const s = strings();
  const scale = scaleOf(state, theme.value, columns);
  return (
    <div class="map-controls">
      <div class="segments" role="group" aria-label={s.map_scale}>
        {(["log", "linear"] as const).map((kind) => (
          <button
            key={kind}
            type="button"
            aria-pressed={scale.log === (kind === "log")}
            onClick={() => state.set("scale", kind)}
          >
            {s[`map_${kind}`]}
          </button>
        ))}
      </div>
      <Contrast state={state} log={scale.log} decades={scale.decades} full={scale.full} />
      {!small && <PoolChoice state={state} />}
      {!small && (
        <div class="segments icons" role="group">
          <button type="button" aria-label={s.map_zoom_out} title={s.map_zoom_out} onClick={() => onZoom(0.5)}>
            <Icon name="minus" />
          </button>
          <button type="button" aria-label={s.map_zoom_all} title={s.map_zoom_all} onClick={() => onZoom(0)}>
            <Icon name="fit" />
          </button>
          <button type="button" aria-label={s.map_zoom_in} title={s.map_zoom_in} onClick={() => onZoom(2)}>
            <Icon name="plus" />
          </button>
        </div>
      )}
      <span class="badges">
        <span class={`badge ${statistic}`} title={s[`statistic_${statistic}_hint`]}>
          {s[`statistic_${statistic}`]}
        </span>
        <span class="badge">{trace.dtype}</span>
        <span class={`badge ${trace.live ? "live" : ""}`} title={trace.live ? s.live_hint : s.recorded_hint}>
          {trace.live ? s.live : s.recorded}
        </span>
        {loading && <span class="spinner" role="img" aria-label={s.loading} />}
      </span>
    </div>
  );
}

interface ContrastProps {
  state: Store;
  log: boolean;
  decades: number;
  full: number;
}

/** The range of the scale, as a slider that is its own legend. */
function Contrast({ state, log, decades, full }: ContrastProps) {
  const s = strings();
  const text = log
    ? fill(s.map_range_log, { n: superscript(decades) }).replace("⁻⁻", "⁻")
    : fill(s.map_range_linear, { n: full === 1 ? 1 : formatNumber(full, full < 0.02 ? 4 : 2) });
  return (
    <label class="contrast">
      <span class="visually-hidden">{s.map_contrast}</span>
      <Legend />
      <input
        type="range"
        min={log ? 1 : 0}
        max={log ? 6 : 10}
        step={0.5}
        value={log ? 7 - decades : -Math.log2(full)}
        aria-valuetext={text}
        onInput={(event) => {
          const value = Number(event.currentTarget.value);
          state.set(log ? "decades" : "gain", log ? 7 - value : value);
        }}
      />
      <span class="contrast-text">{text}</span>
    </label>
  );
}

const LEGEND_STEPS = 22;

/** The colors from the smallest weight to the largest. */
function Legend() {
  const wide = 132 / LEGEND_STEPS;
  return (
    <svg class="legend-bar" width={132} height={12} aria-hidden="true">
      {Array.from({ length: LEGEND_STEPS }, (_, step) => (
        <rect
          key={step}
          x={step * wide}
          width={wide + 0.5}
          height={12}
          fill={weightColor(step / (LEGEND_STEPS - 1), theme.value)}
        />
      ))}
    </svg>
  );
}

const DIGITS = "⁰¹²³⁴⁵⁶⁷⁸⁹";

function superscript(value: number): string {
  return String(value)
    .replace(/\d/g, (digit) => DIGITS[Number(digit)])
    .replace(".", "·");
}

function PoolChoice({ state }: { state: Store }) {
  const s = strings();
  return (
    <label class="field">
      <span>{s.map_pool}</span>
      <select value={state.get("pool") ?? "auto"} onChange={(event) => state.set("pool", event.currentTarget.value)}>
        {(["auto", "max", "mean", "sample"] as const).map((pool) => (
          <option key={pool} value={pool}>
            {s[`map_pool_${pool}`]}
          </option>
        ))}
      </select>
    </label>
  );
}
