/** Beam search as a tree that grows: a slider goes back in time, dropped beams stay visible. */
import { useEffect, useRef, useState } from "preact/hooks";
import { fill, formatNumber, strings } from "../i18n";
import { tokenLabel } from "../parts/token";
import type { ViewProps } from "../types";
import { beamTree, hypothesis, lastStep, type Node, type Step, type Tree } from "./geometry/beam_tree";
import { Badges } from "./shared/badges";
import { Controls, Slider, TextArea } from "./shared/controls";
import { Notice } from "./shared/notice";
import { textOf } from "./shared/selection";
import { useStream } from "./shared/stream";

export function Beams({ trace, transport, state }: ViewProps) {
  const s = strings();
  const [text, setText] = useState(state.get("text") ?? textOf(trace));
  const beams = state.number("beams", 4);
  const search = useStream<Step>(transport, "beams", "step");
  const start = () => {
    state.update({ text, step: undefined });
    void search.start({ text, beams });
  };
  useEffect(() => {
    if (state.get("text") !== undefined) start(); // a link to a search shows its tree
  }, []);
  return (
    <section class="v-view" aria-label={s["v.beams"]}>
      <Badges trace={trace} />
      <Controls>
        <TextArea label={s["v.beams.text"]} value={text} onInput={setText} onSubmit={start} />
        <Slider
          label={s["v.beams.count"]}
          value={beams}
          min={2}
          max={8}
          step={1}
          text={String(beams)}
          onInput={(value) => state.set("beams", value)}
        />
        <button type="button" class="button v-primary" disabled={search.busy} onClick={start}>
          {s["v.beams.start"]}
        </button>
      </Controls>
      {search.failure && <Notice alert>{search.failure}</Notice>}
      {search.items.length > 0 ? (
        <Growing steps={search.items} state={state} />
      ) : (
        <p class="v-hint">{search.busy ? s["v.waiting"] : s["v.beams.hint"]}</p>
      )}
    </section>
  );
}

function Growing({ steps, state }: { steps: Step[]; state: ViewProps["state"] }) {
  const s = strings();
  const [node, setNode] = useState<Node["id"] | null>(null);
  const end = lastStep(steps);
  const shown = Math.max(1, Math.min(steps.length, Math.round(state.number("step", end))));
  const tree = beamTree(steps, shown);
  const pointed = tree.nodes.find((one) => one.id === node) ?? tree.nodes.findLast((one) => one.best);
  return (
    <>
      <Slider
        label={s["v.time"]}
        value={shown}
        min={1}
        max={Math.max(2, steps.length)}
        step={1}
        text={fill(s.step_of, { n: shown, all: steps.length })}
        onInput={(value) => state.set("step", value === end ? undefined : value)}
      />
      {pointed && (
        <p class="v-prompt" aria-live="polite">
          {hypothesis(tree, pointed.id).join("")}{" "}
          <small>
            {fill(s[pointed.kept ? "v.beams.kept" : "v.beams.dropped"], { logp: formatNumber(pointed.total) })}
          </small>
        </p>
      )}
      <TreePicture tree={tree} steps={shown} chosen={pointed?.id ?? null} onChoose={setNode} />
      <p class="v-hint">{s["v.beams.legend"]}</p>
    </>
  );
}

const COLUMN = 118;
const ROW = 30;
const BOX = 92;

const left = (node: Node): number => node.step * COLUMN + 4;
const top = (node: Node): number => node.slot * ROW + 16;

interface TreePictureProps {
  tree: Tree;
  steps: number;
  chosen: Node["id"] | null;
  onChoose: (id: Node["id"]) => void;
}

function TreePicture({ tree, steps, chosen, onChoose }: TreePictureProps) {
  const group = useRef<SVGSVGElement>(null);
  const s = strings();
  useEffect(() => {
    group.current?.querySelector(".v-node.on")?.scrollIntoView({ inline: "nearest", block: "nearest" });
  }, [steps]);
  const move = (node: Node, key: string) => {
    const next = neighbor(tree, node, key);
    if (!next) return false;
    onChoose(next.id);
    group.current?.querySelector<SVGElement>(`[data-id="${CSS.escape(String(next.id))}"]`)?.focus();
    return true;
  };
  return (
    <div class="v-scroll">
      <svg
        ref={group}
        class="v-tree"
        width={steps * COLUMN}
        height={tree.slots * ROW + 8}
        role="group"
        aria-label={s["v.beams"]}
      >
        {tree.edges.map(
          ({ from, to }) =>
            from && (
              <path
                key={String(to.id)}
                class={`v-edge ${looks(to)}`}
                d={curve(left(from) + BOX, top(from), left(to), top(to))}
              />
            ),
        )}
        {tree.nodes.map((node) => (
          <g
            key={String(node.id)}
            data-id={String(node.id)}
            class={`v-node ${looks(node)} ${node.id === chosen ? "on" : ""}`}
            transform={`translate(${left(node)},${top(node) - 12})`}
            role="button"
            tabindex={node.id === chosen ? 0 : -1}
            aria-pressed={node.id === chosen}
            aria-label={`${tokenLabel(node.token, 7)} ${formatNumber(node.total, 1)} ${node.kept ? "" : s["v.beams.is_dropped"]}`}
            onClick={() => onChoose(node.id)}
            onKeyDown={(event) => {
              if (event.key === "Enter" || event.key === " ") onChoose(node.id);
              else if (!move(node, event.key)) return;
              event.preventDefault();
              event.stopPropagation();
            }}
          >
            <rect width={BOX} height={24} rx={4} />
            <text x={7} y={16}>
              {tokenLabel(node.token, 7)}
            </text>
            <text class="v-logp" x={BOX - 5} y={16} text-anchor="end">
              {formatNumber(node.total, 1)}
            </text>
          </g>
        ))}
      </svg>
    </div>
  );
}

const looks = (node: Node): string => (node.best ? "best" : node.kept ? "kept" : "dropped");

const curve = (x: number, y: number, to: number, down: number): string =>
  `M${x},${y} C${(x + to) / 2},${y} ${(x + to) / 2},${down} ${to},${down}`;

/** The beam that an arrow key leads to: the parent, the best child, or the beams of the same step. */
function neighbor(tree: Tree, node: Node, key: string): Node | null | undefined {
  if (key === "ArrowLeft") return tree.edges.find(({ to }) => to.id === node.id)?.from;
  if (key === "ArrowRight") return tree.edges.find(({ from }) => from?.id === node.id)?.to;
  const slot = key === "ArrowDown" ? node.slot + 1 : key === "ArrowUp" ? node.slot - 1 : -1;
  return tree.nodes.find((other) => other.step === node.step && other.slot === slot);
}
