/** The page: top bar, navigation, stage, timeline, live region. */
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { chapters } from "../chapters";
import { language, strings } from "../i18n";
import { theme } from "../theme/theme";
import { views } from "../views";
import { Help } from "./help";
import { handleKeys, keyScope } from "./keys";
import { Navigation } from "./navigation";
import { pageOf } from "./pages";
import { useSession } from "./session";
import { Stage } from "./stage";
import { TopBar } from "./topbar";

export function Shell() {
  const session = useSession();
  const menu = useSignal(false);
  const help = useSignal(false);
  const root = useRef<HTMLDivElement>(null);
  const s = strings();
  const route = session.state.route.value;

  useEffect(() => {
    const scope = keyScope(root.current);
    const listener = (event: Event) => handleKeys(event as KeyboardEvent, session, help);
    scope?.addEventListener("keydown", listener);
    return () => scope?.removeEventListener("keydown", listener);
  }, [session]);
  useEffect(() => {
    menu.value = false;
    const page = pageOf(route);
    const found = [...chapters, ...views].find(({ id }) => id === page?.id);
    if (found) session.announce(found.title(strings()));
  }, [route.kind, route.id]);

  return (
    <div class="softlook" ref={root} data-theme={theme.value} lang={language.value} tabIndex={-1}>
      <a
        class="skip"
        href="#stage"
        onClick={(event) => {
          event.preventDefault();
          root.current?.querySelector<HTMLElement>("main")?.focus();
        }}
      >
        {s.skip_to_stage}
      </a>
      <TopBar menu={menu} help={help} />
      <div class="body">
        <Navigation open={menu.value} chapters={chapters} views={views} />
        <Stage />
      </div>
      {help.value && <Help onClose={() => (help.value = false)} />}
      <div class="visually-hidden" role="status" aria-live="polite">
        {session.sentence.value}
      </div>
    </div>
  );
}
