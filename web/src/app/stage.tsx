/** The stage: the chapter or the view that the address names. */
import { Component, type ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { chapters } from "../chapters";
import { fill, language, strings } from "../i18n";
import { reducedMotion } from "../theme/theme";
import type { Chapter, View } from "../types";
import { views } from "../views";
import { ExportMenu } from "./export-menu";
import { isForControl, keyScope } from "./keys";
import { goTo, isOffered, neighborOf, pageOf } from "./pages";
import { useSession } from "./session";
import { Timeline, useTimeline } from "./timeline";

export function Stage() {
  const session = useSession();
  const page = pageOf(session.state.route.value);
  const chapter = page?.kind === "chapter" ? chapters.find(({ id }) => id === page.id) : undefined;
  const view = page?.kind === "view" ? views.find(({ id }) => id === page.id) : undefined;
  return (
    <main class="stage" id="stage" tabIndex={-1}>
      <Boundary key={`${page?.kind}/${page?.id}`}>
        {chapter ? <ChapterStage chapter={chapter} /> : <ViewStage view={view} />}
      </Boundary>
    </main>
  );
}

function ChapterStage({ chapter }: { chapter: Chapter }) {
  const s = strings();
  const session = useSession();
  const control = useTimeline(session.state, chapter.steps);
  const root = useRef<HTMLElement>(null);
  useEffect(() => {
    const scope = keyScope(root.current);
    const onKey = (event: Event) => {
      if (event instanceof KeyboardEvent) move(event);
    };
    const move = (event: KeyboardEvent) => {
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isForControl(event)) return;
      if (event.key === " ") control.toggle();
      else if (event.key === "ArrowRight") control.step(1);
      else if (event.key === "ArrowLeft") control.step(-1);
      else return;
      event.preventDefault();
    };
    scope?.addEventListener("keydown", onKey);
    return () => scope?.removeEventListener("keydown", onKey);
  }, [chapter]);
  const number = chapters.indexOf(chapter) + 1;
  return (
    <article class="chapter" ref={root} data-chapter={chapter.id}>
      <header class="page-title">
        <span class="number">{number}</span>
        <h2>{chapter.title(s)}</h2>
        <ExportMenu name={chapter.id} />
      </header>
      <div class="page-body">
        <chapter.component
          t={control.t}
          trace={session.trace.value}
          transport={session.transport}
          reducedMotion={reducedMotion.value}
          language={language.value}
          state={session.state}
        />
        <Neighbors id={chapter.id} />
      </div>
      <Timeline control={control} steps={chapter.steps} />
    </article>
  );
}

function Neighbors({ id }: { id: string }) {
  const s = strings();
  const { state } = useSession();
  const link = (by: number, text: string) => {
    const page = neighborOf({ kind: "chapter", id }, by);
    const chapter = chapters.find((one) => one.id === page?.id);
    if (!chapter) return <span />;
    return (
      <button type="button" class="button quiet" onClick={() => goTo(state, page)}>
        {fill(text, { title: chapter.title(s) })}
      </button>
    );
  };
  return (
    <div class="neighbors">
      {link(-1, s.previous_chapter)}
      {link(1, s.next_chapter)}
    </div>
  );
}

function ViewStage({ view }: { view: View | undefined }) {
  const s = strings();
  const session = useSession();
  const trace = session.trace.value;
  const everywhere = session.info.value?.capabilities ?? [];
  if (session.failure.value) {
    return (
      <Notice text={fill(s.not_connected, { reason: session.failure.value })}>
        <button type="button" class="button" onClick={() => session.open()}>
          {s.try_again}
        </button>
      </Notice>
    );
  }
  if (!session.info.value) return <Notice text={s.loading} />;
  if (!trace) return <Notice text={s.no_trace} />;
  if (!view) return <Notice text={s.view_missing} />;
  if (!isOffered(view.needs, trace, everywhere)) return <Missing view={view} />;
  return (
    <article class="view" data-view={view.id}>
      <header class="page-title">
        <h2>{view.title(s)}</h2>
        <ExportMenu name={view.id} />
      </header>
      <div class="page-body">
        <view.component
          key={trace.id}
          trace={trace}
          transport={session.transport}
          state={session.state}
          language={language.value}
        />
      </div>
    </article>
  );
}

/** What a view lacks, and the command that provides it. */
function Missing({ view }: { view: View }) {
  const s = strings();
  const missing = view.missing?.(s);
  return (
    <article class="view" data-view={view.id}>
      <header class="page-title">
        <h2>{view.title(s)}</h2>
      </header>
      <Notice text={missing?.text ?? s.view_missing}>
        {missing && <code class="command">{missing.command}</code>}
      </Notice>
    </article>
  );
}

function Notice({ text, children }: { text: string; children?: ComponentChildren }) {
  return (
    <div class="notice">
      <p>{text}</p>
      {children}
    </div>
  );
}

/** A view that fails says so in its place; the page around it stays. */
class Boundary extends Component<{ children: ComponentChildren }, { failure: Error | null }> {
  override state = { failure: null as Error | null };

  override componentDidCatch(failure: Error): void {
    console.error(failure);
    this.setState({ failure });
  }

  override render() {
    const { failure } = this.state;
    if (!failure) return this.props.children;
    return (
      <Notice text={fill(strings().something_failed, { reason: failure.message })}>
        <button type="button" class="button" onClick={() => this.setState({ failure: null })}>
          {strings().try_again}
        </button>
      </Notice>
    );
  }
}
