/** Layout of a beam tree: steps from left to right, the beams of a step from top to bottom. */

export interface Beam {
  id: string | number;
  parent: string | number | null;
  token: string;
  logp: number;
  kept: boolean;
}

export interface Step {
  step: number;
  beams: Beam[];
}

export interface Node extends Beam {
  step: number;
  slot: number;
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

/** The nodes and edges of the first `shown` steps. Kept beams come first in a step, each group by log probability. */
export function beamTree(steps: Step[], shown = steps.length): Tree {
  const nodes = steps.slice(0, shown).flatMap(({ beams }, step) =>
    [...beams]
      .sort((a, b) => Number(b.kept) - Number(a.kept) || b.logp - a.logp)
      .map((beam, slot) => ({
        ...beam,
        step,
        slot,
        best: false,
      })),
  );
  const known = new Map(nodes.map((node) => [key(node.id), node]));
  const parent = (node: Node) => (node.parent === null ? null : (known.get(key(node.parent)) ?? null));
  const last = nodes.filter((node) => node.step === shown - 1);
  for (let node = bestOf(last); node; node = parent(node)) node.best = true;
  return {
    nodes,
    edges: nodes.map((node) => ({ from: parent(node), to: node })),
    slots: Math.max(0, ...nodes.map((node) => node.slot + 1)),
  };
}

function bestOf(nodes: Node[]): Node | null {
  const kept = nodes.some((node) => node.kept) ? nodes.filter((node) => node.kept) : nodes;
  return kept.reduce<Node | null>((best, node) => (best === null || node.logp > best.logp ? node : best), null);
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
