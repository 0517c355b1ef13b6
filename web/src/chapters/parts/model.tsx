/** The end of a chapter: the same picture on a head of the loaded model. */
import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";
import { fill } from "../../i18n";
import { useProps, useText } from "./context";
import type { Chosen } from "./remote";
import { Words } from "./words";

interface ModelProps {
  chosen: Chosen;
  children: ComponentChildren;
  /** The key of the text, after "c.<chapter>.". */
  about?: string;
  /** Without the choice of one head. */
  allHeads?: boolean;
  row?: { value: number; tokens: string[]; onChange: (row: number) => void };
}

export function Model({ chosen, children, about = "model", allHeads = false, row }: ModelProps) {
  const text = useText();
  const { state } = useProps();
  const { trace, info } = chosen;
  const cut = info.rows > chosen.rows || info.columns > chosen.columns;
  return (
    <section class="model" data-model={trace.id}>
      <h3>{text("model.title")}</h3>
      <p>
        <Words text={text(about)} />
      </p>
      <div class="controls">
        <Select
          label={text("model.layer")}
          value={chosen.attention}
          options={trace.attentions.map(({ layer, kind }) => `${layer} · ${text(`model.${kind}`)}`)}
          onChange={(value) => state.set("attention", value)}
        />
        {!allHeads && (
          <Select
            label={text("model.head")}
            value={chosen.head}
            options={Array.from({ length: info.heads }, (_, i) => `${i}`)}
            onChange={(value) => state.set("head", value)}
          />
        )}
        {row && <Select label={text("model.row")} value={row.value} options={row.tokens} onChange={row.onChange} />}
      </div>
      {children}
      <p class="constants">
        {fill(text("model.source"), { model: trace.model, dtype: trace.dtype, path: info.path })}
        {cut &&
          ` ${fill(text("model.cut"), { shown: `${chosen.rows} × ${chosen.columns}`, all: `${info.rows} × ${info.columns}` })}`}
      </p>
    </section>
  );
}

interface SelectProps {
  label: string;
  value: number;
  options: string[];
  onChange: (value: number) => void;
}

export function Select({ label, value, options, onChange }: SelectProps) {
  const id = useId();
  return (
    <div class="control select">
      <label for={id}>{label}</label>
      <select
        id={id}
        value={value}
        onKeyDown={(event) => event.stopPropagation()}
        onChange={(event) => onChange(Number(event.currentTarget.value))}
      >
        {options.map((option, i) => (
          <option key={i} value={i}>
            {option}
          </option>
        ))}
      </select>
    </div>
  );
}
