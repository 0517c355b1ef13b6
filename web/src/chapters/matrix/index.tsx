/** Matrix form: all queries at once. */
import { formatNumber } from "../../i18n";
import type { ChapterProps } from "../../types";
import constants from "../constants.json";
import { Morph, Reveal } from "../parts/block";
import { useProgress, useText } from "../parts/context";
import { Switch } from "../parts/controls";
import { Frame } from "../parts/frame";
import { keptIndex, keptSwitch } from "../parts/kept";
import { type Matrix, matmul, sum, transpose } from "../parts/math";
import { ModelMap } from "../parts/model_map";
import { Predict } from "../parts/predict";
import { products, term } from "../parts/show";
import { type Cursor, MatrixBlock } from "../parts/squares";
import { matrixForm } from "./numbers";

export const STEPS = 5;
const { input, tokens } = constants.sentence;
const [Q, K, V] = [constants.qkv.query, constants.qkv.key, constants.qkv.value].map((weight) => matmul(input, weight));

export function MatrixChapter(props: ChapterProps) {
  const [row, setRow] = keptIndex(props.state, "i", 2, tokens.length);
  const [column, setColumn] = keptIndex(props.state, "j", 0, tokens.length);
  const [causal, setCausal] = keptSwitch(props.state, "causal", false);
  const numbers = matrixForm(Q, K, V, causal);
  const cursor = { row, column };
  const onCursor = (next: Cursor) => {
    setRow(next.row);
    setColumn(next.column);
  };
  const sums = numbers.weights.map((weights) => Math.abs(sum(weights) - 1));
  return (
    <Frame
      id="matrix"
      steps={STEPS}
      props={props}
      formulas={[
        "\\z{Z}=\\op{softmax}(\\frac{\\q{Q}\\k{K}^\\top}{\\sqrt{d}})\\v{V}",
        cellFormula(numbers, cursor),
        outputFormula(numbers.weights[row], numbers.output[row]),
      ]}
      checks={[
        { name: "loops", error: numbers.error, tolerance: 1e-12 },
        { name: "sum", error: Math.max(...sums), tolerance: 1e-12 },
      ]}
      controls={<Controls causal={causal} setCausal={setCausal} />}
      predict={<Predict options={3} answer={1} />}
      model={<ModelMap />}
    >
      <Picture {...{ numbers, cursor, onCursor }} />
    </Frame>
  );
}

type Numbers = ReturnType<typeof matrixForm>;

function cellFormula({ scores, weights }: Numbers, { row, column }: Cursor): string {
  const score = scores[row][column];
  const names = `_{${row + 1}${column + 1}}`;
  if (score === Number.NEGATIVE_INFINITY) return `s${names}=\\minus\\infty\\quad \\w{a${names}}=0`;
  const weight = `\\w{a${names}}=\\w{${formatNumber(weights[row][column], 3)}}`;
  return `s${names}=\\frac{${products(Q[row], K[column], ["q", "k"])}}{\\sqrt{3}}=${term(score, 3)}\\quad ${weight}`;
}

function outputFormula(weights: number[], output: number[]): string {
  const first = V.map((value) => value[0]);
  return `\\z{z_1}=${products(weights, first, ["w", "v"], 2)}=\\z{${term(output[0], 3)}}`;
}

function Controls({ causal, setCausal }: { causal: boolean; setCausal: (value: boolean) => void }) {
  const text = useText();
  return <Switch label={text("causal")} value={causal} onChange={setCausal} />;
}

interface PictureProps {
  numbers: Numbers;
  cursor: Cursor;
  onCursor: (cursor: Cursor) => void;
}

function Picture({ numbers, cursor, onCursor }: PictureProps) {
  const text = useText();
  const progress = useProgress();
  const names = tokens.map((token) => text(`w.${token}`));
  const grid = { rows: names, columns: names, cursor, onCursor };
  const bright = (i: number, j: number) => i === cursor.row || j === cursor.column;
  const apart = { "--gap": `${(1 - progress(2)) * 14}px` };
  const scores = (values: Matrix, letter: string, caption: string) => (
    <MatrixBlock
      letter={letter}
      name={text(caption)}
      values={values}
      tone="query"
      limit={6}
      bright={bright}
      {...grid}
    />
  );
  return (
    <>
      <div class="flow" style={apart}>
        <MatrixBlock letter="Q" values={Q} tone="query" rows={names} limit={2} bright={(i) => i === cursor.row} />
        <span class="sign">×</span>
        <MatrixBlock
          letter="Kᵀ"
          values={transpose(K)}
          tone="key"
          columns={names}
          limit={2}
          bright={(_, j) => j === cursor.column}
        />
      </div>
      <div class="flow">
        <Reveal at={1}>
          <div style={apart}>
            <Morph
              at={4}
              before={
                <Morph
                  at={3}
                  before={scores(numbers.products, "QKᵀ", "products")}
                  after={scores(numbers.scores, "S", "scores")}
                />
              }
              after={
                <MatrixBlock
                  letter="A"
                  name={text("weights")}
                  values={numbers.weights}
                  tone="weight"
                  limit={1}
                  digits={2}
                  bright={bright}
                  {...grid}
                />
              }
            />
          </div>
        </Reveal>
        <Reveal at={5} class="flow">
          <span class="sign">×</span>
          <MatrixBlock letter="V" values={V} tone="value" limit={2} />
          <span class="sign">=</span>
          <MatrixBlock
            letter="Z"
            values={numbers.output}
            tone="output"
            limit={2}
            digits={2}
            bright={(i) => i === cursor.row}
          />
        </Reveal>
      </div>
    </>
  );
}
