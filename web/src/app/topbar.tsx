/** The bar at the top: name, trace, sentence, undo, export, theme, language. */
import { type Signal, useComputed } from "@preact/signals";
import { language, setLanguage, strings } from "../i18n";
import { Icon } from "../parts/Icon";
import { nextTheme, themeChoice } from "../theme/theme";
import { pageOf } from "./pages";
import { useSession } from "./session";
import { TextInput } from "./text-input";

interface Props {
  menu: Signal<boolean>;
  help: Signal<boolean>;
}

export function TopBar({ menu, help }: Props) {
  const s = strings();
  const { state } = useSession();
  const isView = pageOf(state.route.value)?.kind === "view";
  const canUndo = useComputed(() => state.canUndo());
  const canRedo = useComputed(() => state.canRedo());
  const themeLabel = { auto: s.theme_auto, light: s.theme_light, dark: s.theme_dark }[themeChoice.value];
  return (
    <header class="topbar">
      <button
        type="button"
        class="icon-button menu-button"
        aria-label={s.menu}
        aria-expanded={menu.value}
        onClick={() => (menu.value = !menu.value)}
      >
        <Icon name="menu" />
      </button>
      <h1 class="wordmark">
        <Mark />
        <span>
          softlook <b>studio</b>
        </span>
      </h1>
      {isView && <TraceChoice />}
      {isView && <TextInput />}
      <div class="topbar-actions">
        <button
          type="button"
          class="icon-button"
          aria-label={s.undo}
          title={s.undo}
          disabled={!canUndo.value}
          onClick={() => state.undo()}
        >
          <Icon name="undo" />
        </button>
        <button
          type="button"
          class="icon-button"
          aria-label={s.redo}
          title={s.redo}
          disabled={!canRedo.value}
          onClick={() => state.redo()}
        >
          <Icon name="redo" />
        </button>
        <button type="button" class="icon-button" aria-label={themeLabel} title={themeLabel} onClick={nextTheme}>
          <Icon name={themeChoice.value} />
        </button>
        <button
          type="button"
          class="icon-button language"
          aria-label={s.language}
          title={s.language}
          onClick={() => setLanguage(language.value === "en" ? "de" : "en")}
        >
          {language.value === "en" ? "DE" : "EN"}
        </button>
        <button
          type="button"
          class="icon-button help-button"
          aria-label={s.help}
          title={s.help}
          aria-expanded={help.value}
          onClick={() => (help.value = !help.value)}
        >
          <Icon name="help" />
        </button>
      </div>
    </header>
  );
}

/** The mark of the project: a small causal map. */
function Mark() {
  const shares = [[1], [0.35, 0.85], [0.6, 0.2, 1]];
  return (
    <svg class="mark" width="22" height="22" viewBox="0 0 22 22" aria-hidden="true">
      {shares.flatMap((row, i) =>
        row.map((share, j) => (
          <rect key={`${i}${j}`} x={1 + 7 * j} y={1 + 7 * i} width="6" height="6" rx="1.5" opacity={share} />
        )),
      )}
    </svg>
  );
}

function TraceChoice() {
  const s = strings();
  const session = useSession();
  const trace = session.trace.value;
  if (!trace) return null;
  const state = trace.live ? s.live : s.recorded;
  return (
    <div class="trace-choice">
      {session.traces.value.length > 1 ? (
        <select
          aria-label={s.trace}
          value={trace.id}
          onChange={(event) => session.state.set("trace", event.currentTarget.value)}
        >
          {session.traces.value.map(({ id, title }) => (
            <option key={id} value={id}>
              {title}
            </option>
          ))}
        </select>
      ) : (
        <span class="trace-title">{trace.title}</span>
      )}
      <span class={`badge ${trace.live ? "live" : ""}`} title={trace.live ? s.live_hint : s.recorded_hint}>
        {state}
      </span>
      {session.info.value?.loading && (
        <span class="badge loading" role="status">
          <span class="spinner" /> {s.model_loading}
        </span>
      )}
    </div>
  );
}
