// Bundles every *.test.ts of src and runs it with node --test.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const WEB = dirname(fileURLToPath(import.meta.url));
const tests = readdirSync(join(WEB, "src"), { recursive: true })
  .filter((name) => /\.test\.tsx?$/.test(name))
  .map((name) => join(WEB, "src", name));
const folder = mkdtempSync(join(tmpdir(), "studio-tests-"));
await build({
  entryPoints: tests,
  outdir: folder,
  outbase: join(WEB, "src"),
  outExtension: { ".js": ".mjs" },
  bundle: true,
  format: "esm",
  platform: "node",
  jsx: "automatic",
  jsxImportSource: "preact",
  loader: { ".css": "empty" },
  logLevel: "warning",
});
const bundles = readdirSync(folder, { recursive: true })
  .filter((name) => name.endsWith(".mjs"))
  .map((name) => join(folder, name));
const { status } = spawnSync(process.execPath, ["--test", ...process.argv.slice(2), ...bundles], { stdio: "inherit" });
rmSync(folder, { recursive: true });
process.exit(status ?? 1);
