/** Queries, keys and values: one word, seen through three lenses. */
import { formatNumber } from "../../i18n";
import type { ChapterProps } from "../../types";
import constants from "../constants.json";
import { Block, Reveal } from "../parts/block";
import { useText } from "../parts/context";
import { Frame } from "../parts/frame";
import { keptIndex, keptMatrix, withEntry } from "../parts/kept";
import type { Matrix } from "../parts/math";
import { ModelCell } from "../parts/model_cell";
import { Predict } from "../parts/predict";
import { products, term } from "../parts/show";
import { MatrixBlock, type Tone, VectorBlock } from "../parts/squares";
import { TokenChoice } from "../parts/tokens";
import { project } from "./numbers";

export const STEPS = 5;
const { input, tokens, features } = constants.sentence;
const { dims } = constants.qkv;

interface Lens {
  letter: string;
  tone: Tone;
  weight: Matrix;
  setWeight: (weight: Matrix) => void;
  at: number;
}

export function QkvChapter(props: ChapterProps) {
  const [word, setWord] = keptIndex(props.state, "word", 2, tokens.length);
  const [query, setQuery] = keptMatrix(props.state, "wq", constants.qkv.query);
  const [key, setKey] = keptMatrix(props.state, "wk", constants.qkv.key);
  const [value, setValue] = keptMatrix(props.state, "wv", constants.qkv.value);
  const lenses: Lens[] = [
    { letter: "Q", tone: "query", weight: query, setWeight: setQuery, at: 2 },
    { letter: "K", tone: "key", weight: key, setWeight: setKey, at: 3 },
    { letter: "V", tone: "value", weight: value, setWeight: setValue, at: 4 },
  ];
  const x = input[word];
  const column = query.map((row) => row[0]);
  return (
    <Frame
      id="qkv"
      steps={STEPS}
      props={props}
      formulas={[
        "\\q{Q}=\\x{X}\\q{W^Q}\\quad \\k{K}=\\x{X}\\k{W^K}\\quad \\v{V}=\\x{X}\\v{W^V}",
        `\\q{q_1}=${products(x, column, ["x", "q"])}=\\q{${term(project([x], query).values[0][0], 2)}}`,
      ]}
      checks={lenses.map(({ letter, weight }) => ({
        name: `same${letter}`,
        error: project(input, weight).error,
        tolerance: 1e-12,
      }))}
      controls={<TokenChoice tokens={tokens} value={word} onChange={setWord} />}
      predict={<Predict options={3} answer={0} />}
      model={<ModelCell />}
    >
      <Input word={word} />
      <div class="lenses">
        {lenses.map((lens) => (
          <Reveal key={lens.letter} at={lens.at} class={`lens border-${lens.tone}`}>
            <LensView lens={lens} word={word} />
          </Reveal>
        ))}
      </div>
    </Frame>
  );
}

/** The words as rows of features; the chosen one is bright. */
function Input({ word }: { word: number }) {
  const text = useText();
  return (
    <MatrixBlock
      letter="X"
      name={text("input")}
      values={input}
      tone="input"
      rows={tokens.map((token) => text(`w.${token}`))}
      columns={features.map((feature) => text(`w.${feature}`))}
      limit={1.5}
      bright={(i) => i === word}
    />
  );
}

function LensView({ lens: { letter, tone, weight, setWeight }, word }: { lens: Lens; word: number }) {
  const text = useText();
  const { values } = project(input, weight);
  const labels = dims.map((name) => text(`w.${name}`));
  return (
    <>
      <MatrixBlock
        letter={`W^${letter}`}
        values={weight}
        tone={tone}
        columns={labels}
        limit={2}
        edit={(i, j, value) => setWeight(withEntry(weight, i, j, value))}
      />
      <VectorBlock letter={letter.toLowerCase()} values={values[word]} tone={tone} limit={2} />
      <Speech letter={letter} values={values[word]} labels={labels} word={text(`w.${tokens[word]}`)} />
      <Reveal at={5}>
        <MatrixBlock letter={letter} values={values} tone={tone} limit={2} bright={(i) => i === word} />
      </Reveal>
    </>
  );
}

interface SpeechProps {
  letter: string;
  values: number[];
  labels: string[];
  word: string;
}

/** What the vector says, from its numbers: the largest first. */
function Speech({ letter, values, labels, word }: SpeechProps) {
  const text = useText();
  const terms = values
    .map((value, i) => ({ value, label: labels[i] }))
    .filter(({ value }) => Math.abs(value) >= 0.1)
    .sort((a, b) => Math.abs(b.value) - Math.abs(a.value))
    .map(({ value, label }) => `${label} ${formatNumber(value, 1)}`);
  return (
    <Block name={`says ${letter}`} class="speech">
      <b>{word}</b>: {text(`says${letter}`)} {terms.length ? terms.join(", ") : text("nothing")}
    </Block>
  );
}
