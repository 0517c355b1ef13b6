/** Formulas: a small part of TeX, written as MathML. */
import type { ComponentChildren, VNode } from "preact";

const SYMBOLS: Record<string, string> = {
  cdot: "·",
  sum: "∑",
  sqrt: "√",
  theta: "θ",
  tau: "τ",
  alpha: "α",
  sigma: "σ",
  infty: "∞",
  approx: "≈",
  neq: "≠",
  times: "×",
  top: "⊤",
  to: "→",
  le: "≤",
  odot: "⊙",
  delta: "δ",

  minus: "−",
  tilde: "~",
  langle: "⟨",
  rangle: "⟩",
  dots: "…",
  norm: "‖",
  ne: "≠",
  pi: "π",
};
const ROLES: Record<string, string> = { q: "query", k: "key", v: "value", z: "output", x: "input", w: "weight" };

type Child = ComponentChildren;

/** Splits "\q{q_i} = 1.5" into commands, groups, numbers and signs. */
function scan(source: string): string[] {
  return source.match(/\\[a-z]+|(?<=[({;]\s*|^)−\d+(?:[.,]\d+)?|\d+(?:[.,]\d+)?|[{}_^]|\p{L}|[^\s]/gu) ?? [];
}

class Parser {
  private at = 0;
  constructor(private readonly tokens: string[]) {}

  /** Parses up to a closing brace or the end. */
  row(): Child[] {
    const items: Child[] = [];
    while (this.at < this.tokens.length && this.tokens[this.at] !== "}") items.push(this.scripted());
    return items;
  }

  /** An atom with its index and exponent. */
  private scripted(): Child {
    const base = this.atom();
    const scripts: Record<string, Child> = {};
    while (this.tokens[this.at] === "_" || this.tokens[this.at] === "^") {
      const sign = this.tokens[this.at++];
      scripts[sign] = this.atom();
    }
    const { _: sub, "^": sup } = scripts;
    if (sub && sup) return <msubsup>{[base, sub, sup]}</msubsup>;
    if (sub) return <msub>{[base, sub]}</msub>;
    return sup ? <msup>{[base, sup]}</msup> : base;
  }

  private group(): VNode {
    this.at++;
    const items = this.row();
    this.at++;
    return <mrow>{items}</mrow>;
  }

  private text(): string {
    const end = this.tokens.indexOf("}", this.at);
    const words = this.tokens.slice(this.at + 1, end).join("");
    this.at = end + 1;
    return words;
  }

  private atom(): Child {
    const token = this.tokens[this.at];
    if (token === "{") return this.group();
    this.at++;
    if (!token.startsWith("\\")) return sign(token);
    const name = token.slice(1);
    if (name === "frac") return <mfrac>{[this.group(), this.group()]}</mfrac>;
    if (name === "sqrt" && this.tokens[this.at] === "{") return <msqrt>{this.group()}</msqrt>;
    if (name === "op") return <mi mathvariant="normal">{this.text()}</mi>;
    if (name === "b") return <mi class="bold">{this.text()}</mi>;
    if (name in ROLES) return <mrow class={`ink-${ROLES[name]}`}>{this.group()}</mrow>;
    return sign(SYMBOLS[name] ?? name);
  }
}

/** A chunk may begin with one of these: it is still between two terms. */
const INFIX = { form: "infix" } as object;

function sign(token: string): VNode {
  if (/^−?\d/.test(token)) return <mn>{token}</mn>;
  if (/^\p{L}/u.test(token)) return <mi>{token}</mi>;
  return <mo {...(token === "+" || token === "=" ? INFIX : {})}>{token === "-" ? "−" : token}</mo>;
}

/** Splits before = and + outside of braces, so that a long line can wrap. */
export function chunks(source: string): string[] {
  const found = [""];
  let depth = 0;
  for (const letter of source) {
    depth += letter === "{" ? 1 : letter === "}" ? -1 : 0;
    const breaks = (letter === "=" || letter === "+") && depth === 0 && found[found.length - 1] !== "";
    if (breaks) found.push("");
    found[found.length - 1] += letter;
  }
  return found;
}

/** One line of mathematics; it wraps where it is longer than the page, first between equations. */
export function Formula({ source }: { source: string }) {
  return (
    <p class="formula">
      {source.split("\\quad").map((equation, i) => (
        <span key={i} class="equation">
          {chunks(equation).map((chunk, j) => (
            <math key={j}>
              <mrow>{new Parser(scan(chunk)).row()}</mrow>
            </math>
          ))}
        </span>
      ))}
    </p>
  );
}
