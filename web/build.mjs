// Builds the page into src/softlook/studio/static. `--check` compares with what is committed and writes nothing.
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const WEB = dirname(fileURLToPath(import.meta.url));
const SOURCE = join(WEB, "src");
const STATIC = join(WEB, "../src/softlook/studio/static");
const TOKENS = join(WEB, "../src/softlook/lens/figures/tokens.json");
const BUDGET = 150_000; // bytes, all files together, after gzip -9
const FORBIDDEN = [/Math\.random/, /\binnerHTML\b/, /\bouterHTML\b/, /insertAdjacentHTML/, /dangerouslySetInnerHTML/];
const ADDRESS = /https?:\/\/[\w.-]+(\/[\w./-]*)?/g;
const NAMESPACES = ["http://www.w3.org/2000/svg", "http://www.w3.org/1998/Math/MathML", "http://www.w3.org/1999/xhtml"];

function files(folder) {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));
}

/** CSS variables of a theme of tokens.json. */
function variables(colors) {
  return Object.entries(colors)
    .map(([name, color]) => `--${name}: ${color};`)
    .join(" ");
}

/** The colors and fonts of tokens.json as CSS variables of `.softlook`, for both themes. */
function tokensCss() {
  const { colors, fonts } = JSON.parse(readFileSync(TOKENS, "utf8"));
  const both = Object.entries(fonts)
    .map(([name, font]) => `--font-${name}: ${font};`)
    .join(" ");
  return `.softlook { ${both} ${variables(colors.light)} color-scheme: light; }
.softlook[data-theme="dark"] { ${variables(colors.dark)} color-scheme: dark; }`;
}

const tokens = {
  name: "tokens",
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^tokens\.css$/ }, () => ({ path: "tokens.css", namespace: "tokens" }));
    onLoad({ filter: /.*/, namespace: "tokens" }, () => ({ contents: tokensCss(), loader: "css" }));
  },
};

/** Sources with what the page must never do: invent numbers, or parse text as HTML. */
function forbidden() {
  const found = [];
  for (const file of files(SOURCE)) {
    const text = readFileSync(file, "utf8");
    for (const pattern of FORBIDDEN) if (pattern.test(text)) found.push(`${relative(WEB, file)}: ${pattern.source}`);
  }
  return found;
}

/** Languages must have the same strings. */
function missingStrings() {
  const { en, de } = JSON.parse(readFileSync(join(SOURCE, "i18n/strings.json"), "utf8"));
  return [
    ...Object.keys(en)
      .filter((key) => !(key in de))
      .map((key) => `"${key}" has no German text`),
    ...Object.keys(de)
      .filter((key) => !(key in en))
      .map((key) => `"${key}" has no English text`),
  ];
}

function problemsOf(output) {
  const problems = [...forbidden(), ...missingStrings()];
  const size = Object.values(output).reduce((sum, text) => sum + gzipSync(text, { level: 9 }).length, 0);
  if (size > BUDGET) problems.push(`the page has ${size} bytes after gzip, the budget is ${BUDGET}`);
  for (const [name, text] of Object.entries(output)) {
    if (/Math\.random/.test(text)) problems.push(`${name}: Math.random`);
    for (const [address] of text.matchAll(ADDRESS))
      if (!NAMESPACES.includes(address)) problems.push(`${name}: address ${address}`);
  }
  return { problems, size };
}

const result = await build({
  entryPoints: [join(SOURCE, "main.tsx")],
  outfile: join(STATIC, "studio.js"),
  bundle: true,
  write: false,
  minify: true,
  format: "esm",
  target: ["es2022", "chrome111", "firefox113", "safari16.4"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  charset: "utf8",
  plugins: [tokens],
  logLevel: "warning",
});
const output = Object.fromEntries(result.outputFiles.map((file) => [relative(STATIC, file.path), file.text]));
output["index.html"] = readFileSync(join(WEB, "index.html"), "utf8");

const { problems, size } = problemsOf(output);
for (const problem of problems) console.error(`studio: ${problem}`);
if (problems.length) process.exit(1);

if (process.argv.includes("--check")) {
  const stale = Object.keys(output).filter((name) => {
    const path = join(STATIC, name);
    return !existsSync(path) || readFileSync(path, "utf8") !== output[name];
  });
  for (const name of stale)
    console.error(`studio: src/softlook/studio/static/${name} is not what web/ builds: run make web`);
  process.exit(stale.length ? 1 : 0);
}
mkdirSync(STATIC, { recursive: true });
for (const [name, text] of Object.entries(output)) writeFileSync(join(STATIC, name), text);
console.log(`studio: ${Object.keys(output).join(", ")}: ${size} bytes after gzip, budget ${BUDGET}`);
