/** Invariants, computed and shown with their error; and questions to answer before looking. */
import { useText } from "./context";
import { Words } from "./words";

export interface Check {
  /** The text is "c.<chapter>.<name>". */
  name: string;
  error: number;
  tolerance: number;
  /** A number to show before the error. */
  value?: string;
  /** The statement is expected to fail, as equivariance does with positions. */
  broken?: boolean;
}

/** An error as 1e-16, or 0. */
export const formatError = (error: number): string => (error === 0 ? "0" : error.toExponential(1).replace("-", "−"));

export function Checks({ checks }: { checks: Check[] }) {
  const text = useText();
  return (
    <ul class="checks">
      {checks.map((check) => {
        const holds = check.error <= check.tolerance;
        return (
          <li key={check.name} class={holds ? "holds" : "fails"} data-check={check.name} data-error={check.error}>
            <span class="mark" aria-hidden="true">
              {holds ? "✓" : "✗"}
            </span>
            <span>
              <Words text={text(holds || !check.broken ? check.name : `${check.name}.broken`)} />
              {check.value && <b> {check.value}</b>}
            </span>
            <span class="error">
              {text("error")} {formatError(check.error)}
            </span>
          </li>
        );
      })}
    </ul>
  );
}
