/** Sliders, switches and choices. */
import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";

interface SliderProps {
  label: ComponentChildren;
  value: number;
  limits: [number, number];
  step: number;
  /** The value as text. */
  shown: string;
  onChange: (value: number) => void;
}

export function Slider({ label, value, limits, step, shown, onChange }: SliderProps) {
  const id = useId();
  return (
    <div class="control slider">
      <label for={id}>{label}</label>
      <input
        id={id}
        type="range"
        min={limits[0]}
        max={limits[1]}
        step={step}
        value={value}
        aria-valuetext={shown}
        onKeyDown={(event) => event.stopPropagation()}
        onInput={(event) => onChange(event.currentTarget.valueAsNumber)}
      />
      <output for={id}>{shown}</output>
    </div>
  );
}

interface SwitchProps {
  label: string;
  value: boolean;
  onChange: (value: boolean) => void;
}

export function Switch({ label, value, onChange }: SwitchProps) {
  return (
    <button
      type="button"
      class="control switch"
      role="switch"
      aria-checked={value}
      onKeyDown={(event) => event.key === " " && event.stopPropagation()}
      onClick={() => onChange(!value)}
    >
      <span class="knob" aria-hidden="true" />
      {label}
    </button>
  );
}

interface ChoiceProps {
  label: string;
  options: string[];
  value: number;
  onChange: (index: number) => void;
}

/** One of a few. */
export function Choice({ label, options, value, onChange }: ChoiceProps) {
  const name = useId();
  return (
    <fieldset class="control choice">
      <legend>{label}</legend>
      {options.map((option, i) => (
        <label key={i}>
          <input
            type="radio"
            name={name}
            checked={value === i}
            onKeyDown={(event) => event.stopPropagation()}
            onChange={() => onChange(i)}
          />
          <span>{option}</span>
        </label>
      ))}
    </fieldset>
  );
}

export function Button({ children, onClick }: { children: ComponentChildren; onClick: () => void }) {
  return (
    <button
      type="button"
      class="control button"
      onKeyDown={(event) => event.key === " " && event.stopPropagation()}
      onClick={onClick}
    >
      {children}
    </button>
  );
}
