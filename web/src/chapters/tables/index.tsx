/** Tables: every column is a token. */
import { formatNumber, formatPercent } from "../../i18n";
import type { ChapterProps } from "../../types";
import constants from "../constants.json";
import { Bars, Ruler } from "../parts/bars";
import { Reveal } from "../parts/block";
import { useText } from "../parts/context";
import { Slider } from "../parts/controls";
import { Frame } from "../parts/frame";
import { keptOrder, keptVector } from "../parts/kept";
import { permute, sum } from "../parts/math";
import { Select } from "../parts/model";
import { ModelMap } from "../parts/model_map";
import { Predict } from "../parts/predict";
import { MatrixBlock } from "../parts/squares";
import { TokenOrder } from "../parts/tokens";
import { predict, tokensOf } from "./numbers";

export const STEPS = 4;
const { numbers: COLUMNS, categories: CATEGORIES } = constants.tables;
const COUNTS = CATEGORIES.map(({ values }) => values.length);
const NAMES = [...COLUMNS, ...CATEGORIES].map(({ name }) => name);
const FIRST = [...COLUMNS, ...CATEGORIES].map(({ value }) => value);

export function TablesChapter(props: ChapterProps) {
  const [row, setRow] = keptVector(props.state, "cells", FIRST);
  const [order, setOrder] = keptOrder(props.state, "order", NAMES.length);
  const categories = row
    .slice(COLUMNS.length)
    .map((value, c) => Math.min(COUNTS[c] - 1, Math.max(0, Math.round(value))));
  const tokens = tokensOf(row.slice(0, COLUMNS.length), categories, COLUMNS, COUNTS, constants.tables);
  const numbers = predict(permute(tokens, order), constants.tables);
  const inOrder = predict(tokens, constants.tables);
  return (
    <Frame
      id="tables"
      steps={STEPS}
      props={props}
      formulas={[
        "\\x{x_c}=\\frac{\\op{value}\\minus\\op{mean}}{\\op{deviation}}\\b{w}_c+\\b{b}_c\\quad p=\\sigma(\\b{r}\\cdot\\z{y_{\\op{CLS}}})",
        `p=\\sigma(${formatNumber(numbers.logit, 3)})=${formatNumber(numbers.probability, 4)}`,
      ]}
      checks={[
        { name: "invariance", error: Math.abs(numbers.logit - inOrder.logit), tolerance: 1e-12 },
        { name: "sum", error: Math.max(...numbers.weights.map((w) => Math.abs(sum(w) - 1))), tolerance: 1e-12 },
      ]}
      controls={<Cells row={[...row.slice(0, COLUMNS.length), ...categories]} setRow={setRow} />}
      predict={<Predict options={3} answer={2} />}
      model={<ModelMap />}
    >
      <Picture {...{ numbers, order, setOrder }} />
    </Frame>
  );
}

interface PictureProps {
  numbers: ReturnType<typeof predict>;
  order: number[];
  setOrder: (order: number[]) => void;
}

function Picture({ numbers, order, setOrder }: PictureProps) {
  const text = useText();
  const names = NAMES.map((name) => text(name));
  const rows = ["[CLS]", ...permute(names, order)];
  return (
    <>
      <TokenOrder tokens={names} order={order} onChange={setOrder} />
      <div class="flow bottom">
        <Reveal at={1}>
          <MatrixBlock letter="X" name={text("tokens")} values={numbers.x} tone="input" rows={rows} limit={2.5} />
        </Reveal>
        <Reveal at={2}>
          <MatrixBlock
            letter="A"
            name={text("weights")}
            values={numbers.weights}
            tone="weight"
            rows={rows}
            limit={1}
            digits={2}
          />
        </Reveal>
      </div>
      <Reveal at={3}>
        <Ruler name="cls" title={text("cls")} labels={rows} weights={numbers.weights[0]} />
      </Reveal>
      <Reveal at={4}>
        <Bars
          name="probability"
          title={`${text("probability")} ${formatPercent(numbers.probability)}`}
          labels={["p"]}
          values={[numbers.probability]}
          tone="output"
          limit={1}
          digits={4}
          positive
        />
      </Reveal>
    </>
  );
}

/** The cells of the row: numbers with sliders, categories with lists. */
function Cells({ row, setRow }: { row: number[]; setRow: (row: number[]) => void }) {
  const text = useText();
  const change = (index: number, value: number) => setRow(row.map((old, i) => (i === index ? value : old)));
  return (
    <>
      {COLUMNS.map(({ name, limits }, c) => (
        <Slider
          key={name}
          label={text(name)}
          value={row[c]}
          limits={[limits[0], limits[1]]}
          step={1}
          shown={formatNumber(row[c], 0)}
          onChange={(value) => change(c, value)}
        />
      ))}
      {CATEGORIES.map(({ name, values }, c) => (
        <Select
          key={name}
          label={text(name)}
          value={row[COLUMNS.length + c]}
          options={values.map((value) => text(value))}
          onChange={(value) => change(COLUMNS.length + c, value)}
        />
      ))}
    </>
  );
}
