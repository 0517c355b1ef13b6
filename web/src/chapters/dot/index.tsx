/** The dot product: how well two vectors agree. */

import { formatNumber } from "../../i18n";
import type { ChapterProps } from "../../types";
import constants from "../constants.json";
import { Bars } from "../parts/bars";
import { Block, Reveal } from "../parts/block";
import { useProgress, useText } from "../parts/context";
import { Button } from "../parts/controls";
import { Frame } from "../parts/frame";
import { keptVector } from "../parts/kept";
import type { Vector } from "../parts/math";
import { ModelCell } from "../parts/model_cell";
import { Plane } from "../parts/plane";
import { Predict } from "../parts/predict";
import { products as productsOf, term } from "../parts/show";
import { VectorBlock } from "../parts/squares";
import { dotProduct } from "./numbers";

export const STEPS = 4;

export function DotChapter(props: ChapterProps) {
  const [query, setQuery] = keptVector(props.state, "q", constants.dot.query);
  const [key, setKey] = keptVector(props.state, "k", constants.dot.key);
  const numbers = dotProduct(query, key);
  const [q, k] = numbers.lengths;
  return (
    <Frame
      id="dot"
      steps={STEPS}
      props={props}
      formulas={[
        "\\q{\\b{q}}\\cdot\\k{\\b{k}}=\\sum_i \\q{q_i}\\k{k_i}=\\norm\\q{\\b{q}}\\norm\\norm\\k{\\b{k}}\\norm\\op{cos}\\theta",
        `${productsOf(query, key, ["q", "k"])}=${term(numbers.score, 2)}`,
        `\\q{${term(q, 3)}}\\cdot\\k{${term(k, 3)}}\\cdot\\op{cos}${formatNumber(numbers.degrees, 1)}°=${term(numbers.byAngle, 2)}`,
      ]}
      checks={[{ name: "angle", error: Math.abs(numbers.score - numbers.byAngle), tolerance: 1e-12 }]}
      controls={<Poses setQuery={setQuery} keyVector={key} />}
      predict={<Predict options={3} answer={1} />}
      model={<ModelCell />}
    >
      <div class="pair">
        <Arrows {...{ query, key_: key, setQuery, setKey, shadow: numbers.shadow }} />
        <div class="column">
          <VectorBlock
            letter="q"
            values={query}
            tone="query"
            limit={3}
            edit={(i, v) => setQuery(replace(query, i, v))}
          />
          <VectorBlock letter="k" values={key} tone="key" limit={3} edit={(i, v) => setKey(replace(key, i, v))} />
          <Reveal at={2}>
            <VectorBlock letter="q⊙k" values={numbers.products} tone="weight" limit={9} digits={2} />
          </Reveal>
          <Reveal at={3}>
            <Total score={numbers.score} />
          </Reveal>
        </div>
      </div>
    </Frame>
  );
}

const replace = (x: Vector, index: number, value: number): Vector => x.map((old, i) => (i === index ? value : old));

/** The sum as a signed bar. */
function Total({ score }: { score: number }) {
  const text = useText();
  return <Bars name="score" title={text("score")} labels={["q·k"]} values={[score]} tone="weight" limit={18} />;
}

interface ArrowsProps {
  query: Vector;
  key_: Vector;
  setQuery: (at: Vector) => void;
  setKey: (at: Vector) => void;
  shadow: Vector;
}

function Arrows({ query, key_, setQuery, setKey, shadow }: ArrowsProps) {
  const text = useText();
  const share = useProgress()(4);
  return (
    <Plane
      name="plane"
      limit={3}
      arrows={[
        { letter: "k", tone: "key", at: key_, onMove: setKey, label: text("key") },
        { letter: "q", tone: "query", at: query, onMove: setQuery, label: text("query") },
      ]}
    >
      {(toScreen) => {
        const [[x, y], [sx, sy]] = [toScreen(query), toScreen(shadow)];
        const [ox, oy] = toScreen([0, 0]);
        return (
          <g style={{ opacity: share }}>
            <path class="dashes" d={`M${x},${y}L${sx},${sy}`} />
            <path class="shadow" d={`M${ox},${oy}L${sx},${sy}`} />
          </g>
        );
      }}
    </Plane>
  );
}

/** Three positions of the query: with the key, across it, against it. */
function Poses({ setQuery, keyVector: [x, y] }: { setQuery: (at: Vector) => void; keyVector: Vector }) {
  const text = useText();
  return (
    <Block name="poses" class="buttons">
      <Button onClick={() => setQuery([x, y])}>{text("same")}</Button>
      <Button onClick={() => setQuery([-y, x])}>{text("across")}</Button>
      <Button onClick={() => setQuery([-x, -y])}>{text("against")}</Button>
    </Block>
  );
}
