/** Controls with their labels: native elements, so that the keyboard and screen readers work as everywhere. */
import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";

export interface Option {
  value: string;
  text: string;
}

interface ChoiceProps {
  label: string;
  value: string;
  options: Option[];
  onChange: (value: string) => void;
}

/** A list to choose one of many from. */
export function Choice({ label, value, options, onChange }: ChoiceProps) {
  return (
    <label class="v-field">
      <span>{label}</span>
      <select value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {options.map((option) => (
          <option key={option.value} value={option.value}>
            {option.text}
          </option>
        ))}
      </select>
    </label>
  );
}

/** A few alternatives side by side. */
export function Segments({ label, value, options, onChange }: ChoiceProps) {
  const name = useId();
  return (
    <fieldset class="v-segments">
      <legend>{label}</legend>
      {options.map((option) => (
        <label key={option.value} class={option.value === value ? "on" : ""}>
          <input
            type="radio"
            name={name}
            value={option.value}
            checked={option.value === value}
            onChange={() => onChange(option.value)}
          />
          {option.text}
        </label>
      ))}
    </fieldset>
  );
}

interface SliderProps {
  label: string;
  value: number;
  min: number;
  max: number;
  step: number;
  text: string;
  onInput: (value: number) => void;
}

/** A number to drag; `text` is its value for screen readers. */
export function Slider({ label, value, min, max, step, text, onInput }: SliderProps) {
  return (
    <label class="v-field v-slider">
      <span>
        {label} <b>{text}</b>
      </span>
      <input
        type="range"
        min={min}
        max={max}
        step={step}
        value={value}
        aria-valuetext={text}
        onInput={(event) => onInput(Number(event.currentTarget.value))}
      />
    </label>
  );
}

interface TextAreaProps {
  label: string;
  value: string;
  rows?: number;
  onInput: (value: string) => void;
  onSubmit?: () => void;
}

/** A text to type; Ctrl+Enter submits it. */
export function TextArea({ label, value, rows = 2, onInput, onSubmit }: TextAreaProps) {
  return (
    <label class="v-field v-wide">
      <span>{label}</span>
      <textarea
        rows={rows}
        value={value}
        spellcheck={false}
        onInput={(event) => onInput(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || !onSubmit) return;
          event.preventDefault();
          onSubmit();
        }}
      />
    </label>
  );
}

/** Controls in a row that wraps. */
export const Controls = ({ children }: { children: ComponentChildren }) => <div class="v-controls">{children}</div>;
