/** The list of chapters and views. */
import { strings } from "../i18n";
import { formatHash } from "../state/store";
import type { Chapter, View } from "../types";
import { isOffered, pageOf } from "./pages";
import { useSession } from "./session";

interface Props {
  open: boolean;
  chapters: Chapter[];
  views: View[];
}

export function Navigation({ open, chapters, views }: Props) {
  const s = strings();
  const session = useSession();
  const trace = session.trace.value;
  const everywhere = session.info.value?.capabilities ?? [];
  return (
    <nav class={`navigation ${open ? "open" : ""}`} aria-label={s.menu}>
      <h2>{s.part_two}</h2>
      <ul>
        {views.map((view) => (
          <Entry
            key={view.id}
            kind="view"
            id={view.id}
            title={view.title(s)}
            missing={!isOffered(view.needs, trace, everywhere)}
          />
        ))}
      </ul>
      <h2>{s.part_one}</h2>
      <ol>
        {chapters.map((chapter, index) => (
          <Entry key={chapter.id} kind="chapter" id={chapter.id} title={chapter.title(s)} number={index + 1} />
        ))}
      </ol>
    </nav>
  );
}

interface EntryProps {
  kind: "chapter" | "view";
  id: string;
  title: string;
  number?: number;
  /** Whether the view lacks something: it then says what. */
  missing?: boolean;
}

function Entry({ kind, id, title, number, missing = false }: EntryProps) {
  const { state } = useSession();
  const page = pageOf(state.route.value);
  const here = page?.kind === kind && page.id === id;
  return (
    <li>
      <a
        href={formatHash({ kind, id, parameters: {} })}
        class={missing ? "missing" : ""}
        aria-current={here ? "page" : undefined}
        onClick={(event) => {
          if (event.ctrlKey || event.metaKey || event.shiftKey) return;
          event.preventDefault();
          if (!here) state.go(kind, id);
        }}
      >
        {number !== undefined && <span class="number">{number}</span>}
        {title}
      </a>
    </li>
  );
}
