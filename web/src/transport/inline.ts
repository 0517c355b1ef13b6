/** The transport of a single file: every answer is computed in the page from the recorded Q, K and log-sum-exp. */
import type { AttentionMap } from "../math/attention-map";
import { rollout } from "../math/rollout";
import type { AttentionInfo, Frame, Query, Transport } from "../types";
import { floats, overview, tile, weights } from "./inline-maps";
import { explain, lane, lanes, meanMap, scores, strong, vectors } from "./inline-rows";
import { type Recording, readMap } from "./recording";

const MOST_ROLLOUT = 1024;

export class InlineTransport implements Transport {
  private readonly maps = new Map<string, AttentionMap>();

  constructor(private readonly recording: Recording) {}

  async get(path: string, query: Query = {}, signal?: AbortSignal): Promise<unknown> {
    await turn(signal);
    const { recording } = this;
    if (path === "info") return this.info();
    const name = this.nameOf(path);
    const head = Number(query.head ?? 0);
    if (name === "") return recording.info;
    if (name === "lanes") return lanes(this.map(query), head);
    if (name === "strong") return strong(this.map(query), head);
    if (name === "qk") return vectors(this.map(query), head, query);
    if (name === "explain") {
      const [row, column] = [Number(query.row), Number(query.column)];
      return explain(this.map(query), this.attention(query).path, head, row, column);
    }
    if (name === "next") return answerAt(recording.next, query, name);
    if (name === "logit_lens") return answerAt(recording.logit_lens, query, name);
    if (name === "head_table" && recording.head_table) return recording.head_table;
    throw new Error(needsModel(name));
  }

  async frame(path: string, query: Query = {}, signal?: AbortSignal): Promise<Frame> {
    await turn(signal);
    const name = this.nameOf(path);
    if (name === "overview")
      return overview(
        this.recording.attentions.map(({ path }) => this.at(path)),
        Number(query.size ?? 64),
      );
    if (name === "rollout") return this.rollout(query);
    if (name === "tile") return tile(this.map(query), query);
    if (name === "weights") return weights(this.map(query), query);
    if (name === "lanes") return lane(this.map(query), Number(query.head ?? 0), String(query.name));
    if (name === "scores") return scores(this.map(query), Number(query.head ?? 0), Number(query.row));
    throw new Error(needsModel(name));
  }

  async post(path: string): Promise<unknown> {
    throw new Error(needsModel(path));
  }

  async stream(path: string): Promise<void> {
    throw new Error(needsModel(path));
  }

  private info() {
    const { info, version } = this.recording;
    return { version, task: info.task, title: info.model, capabilities: [], traces: [info], runs: [] };
  }

  private nameOf(path: string): string {
    const [kind, id, name = ""] = path.split("/");
    if (kind !== "traces" || decodeURIComponent(id ?? "") !== this.recording.info.id) throw new Error(needsModel(path));
    return name;
  }

  private attention(query: Query): AttentionInfo {
    const { attentions } = this.recording.info;
    const text = String(query.attention ?? "");
    const found = attentions.find(({ path }) => path === text) ?? attentions[Number(text)];
    if (!found) throw new Error(`expected an attention of the trace, got ${text}`);
    return found;
  }

  private map(query: Query): AttentionMap {
    return this.at(this.attention(query).path);
  }

  /** The map of an attention; its numbers are decoded when they are first requested. */
  private at(path: string): AttentionMap {
    const known = this.maps.get(path);
    if (known) return known;
    const recorded = this.recording.attentions.find((one) => one.path === path);
    if (!recorded) throw new Error(`expected an attention of the file, got ${path}`);
    const map = readMap(recorded);
    this.maps.set(path, map);
    return map;
  }

  private rollout(query: Query): Frame {
    const stack = (path: string) => (/^\w*coder/.test(path) ? path.split(".")[0] : "");
    const own = this.recording.info.attentions.filter(({ kind }) => kind !== "cross");
    const name = query.stack ? String(query.stack) : stack(own[0]?.path ?? "");
    const maps = own.filter(({ path }) => stack(path) === name).map(({ path }) => this.at(path));
    const rows = maps[0]?.inputs.rows ?? 0;
    if (!maps.length || query.sources || rows > MOST_ROLLOUT) throw new Error(needsModel("rollout"));
    const flow = rollout(maps.map(meanMap), rows);
    if (query.row === undefined) return floats(flow, [rows, rows]);
    const row = Number(query.row);
    return floats(flow.slice(row * rows, (row + 1) * rows), [rows]);
  }
}

function needsModel(name: string): string {
  return `${name} needs the model: this page is a recording`;
}

function answerAt(answers: unknown[] | undefined, query: Query, name: string): unknown {
  if (!answers) throw new Error(needsModel(name));
  const position = Number(query.position ?? -1);
  const found = answers.at(position);
  if (found === undefined) throw new Error(`expected a position below ${answers.length}, got ${position}`);
  return query.k && Array.isArray(found) ? found.slice(0, Number(query.k)) : found;
}

/** Lets the page draw between two answers, and ends what nobody wants any more. */
async function turn(signal?: AbortSignal): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve));
  signal?.throwIfAborted();
}
