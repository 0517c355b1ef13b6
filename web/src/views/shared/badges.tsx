/** What the numbers of a view are: recorded or live, exact or pooled, and their precision. */
import { strings } from "../../i18n";
import type { Statistic, TraceInfo } from "../../types";

interface BadgesProps {
  trace: TraceInfo;
  statistic?: Statistic;
  /** Whether the model answers; default: as the trace says. */
  live?: boolean;
}

export function Badges({ trace, statistic = "exact", live = trace.live }: BadgesProps) {
  const s = strings();
  return (
    <p class="v-badges">
      <span class={live ? "badge live" : "badge"}>{live ? s.live : s.recorded}</span>
      <span class="badge">{s[`v.statistic.${statistic}`]}</span>
      <span class="badge">{trace.dtype}</span>
    </p>
  );
}
