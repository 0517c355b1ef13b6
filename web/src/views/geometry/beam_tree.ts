/** Layout of a beam tree: steps from left to right, the beams of a step from top to bottom. */

export interface Beam {
  id: string | number;
  parent: string | number | null;
  token: string;
  /** Log probability of the token. */
  logp: number;
  kept: boolean;
  /** "finished" with an end-of-sequence token; others go on or are dropped. */
  status?: string;
  /** What beams are compared by; default: the log probability of all tokens. */
  score?: number;
}

export interface Step {
  step: number;
  beams: Beam[];
}

export interface Node extends Beam {
  step: number;
  slot: number;
  /** Log probability of all tokens so far. */
  total: number;
  /** What it is compared by. */
  rank: number;
  /** Whether the beam is on the way to the best hypothesis of the last step shown. */
  best: boolean;
}

export interface Edge {
  from: Node | null;
  to: Node;
}

export interface Tree {
  nodes: Node[];
  edges: Edge[];
  /** Beams of the widest step. */
  slots: number;
}

const key = (id: string | number): string => String(id);

/** The nodes and edges of the first `shown` steps. Kept beams come first in a step, each group by its rank. */
export function beamTree(steps: Step[], shown = steps.length): Tree {
  const known = new Map<string, Node>();
  const parent = (beam: Beam) => (beam.parent === null ? null : (known.get(key(beam.parent)) ?? null));
  const nodes: Node[] = [];
  for (const [step, { beams }] of steps.slice(0, shown).entries()) {
    const ranked = beams.map((beam) => {
      const total = beam.logp + (parent(beam)?.total ?? 0);
      return { ...beam, step, slot: 0, total, rank: beam.score ?? total, best: false };
    });
    ranked.sort((a, b) => Number(b.kept) - Number(a.kept) || b.rank - a.rank);
    for (const [slot, node] of ranked.entries()) {
      node.slot = slot;
      known.set(key(node.id), node);
      nodes.push(node);
    }
  }
  for (let node = bestOf(nodes, shown - 1); node; node = parent(node)) node.best = true;
  return {
    nodes,
    edges: nodes.map((node) => ({ from: parent(node), to: node })),
    slots: Math.max(0, ...nodes.map((node) => node.slot + 1)),
  };
}

/** The best finished hypothesis, or while there is none the best beam of the last step. */
function bestOf(nodes: Node[], last: number): Node | null {
  const finished = nodes.filter((node) => node.status === "finished");
  const running = nodes.filter((node) => node.step === last && node.kept);
  const chosen = finished.length ? finished : running;
  return chosen.reduce<Node | null>((best, node) => (best === null || node.rank > best.rank ? node : best), null);
}

/** The number of steps until the best hypothesis was complete: the search goes on until no better one is possible. */
export function lastStep(steps: Step[]): number {
  const best = beamTree(steps).nodes.findLast((node) => node.best);
  return best ? best.step + 1 : steps.length;
}

/** The tokens from the first step to a beam. */
export function hypothesis(tree: Tree, id: string | number): string[] {
  const from = new Map(tree.edges.map((edge) => [key(edge.to.id), edge]));
  const tokens: string[] = [];
  for (let edge = from.get(key(id)); edge; edge = edge.from ? from.get(key(edge.from.id)) : undefined) {
    tokens.unshift(edge.to.token);
  }
  return tokens;
}
