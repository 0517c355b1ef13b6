/** What the numbers of a view are: recorded or live, exact or pooled, and their precision. */
import { strings } from "../../i18n";
import type { Statistic, TraceInfo } from "../../types";

interface BadgesProps {
  trace: TraceInfo;
  statistic?: Statistic;
}

export function Badges({ trace, statistic = "exact" }: BadgesProps) {
  const s = strings();
  return (
    <p class="v-badges">
      <span class={trace.live ? "badge live" : "badge"}>{trace.live ? s.live : s.recorded}</span>
      <span class="badge">{s[`v.statistic.${statistic}`]}</span>
      <span class="badge">{trace.dtype}</span>
    </p>
  );
}
