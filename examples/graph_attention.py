"""Attention over a graph: members of a karate club, of which two are labeled, and point sets without any order.

Zachary's karate club (1977) is part of networkx: 34 members, 78 friendships, and a split into two groups after a
quarrel. A small Transformer whose attention follows the friendships learns from two labels, the instructor's and the
officer's, which group each member joined. Its inputs are positions alone: of a random walk, or of the graph's
Laplacian. A few seconds on one CPU core, offline:

    python examples/graph_attention.py
"""

from collections.abc import Callable
from typing import Literal

import networkx as nx
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from softlook import masks
from softlook.blocks import FeedForward, PreNormBlock, SelfAttention

DIM, DEPTH, STEPS, WALK, VECTORS = 16, 2, 60, 8, 4
INSTRUCTOR, OFFICER = 0, 33
Positions = Literal["walk", "laplacian"]


def karate_club() -> tuple[Int[Tensor, "2 E"], Int[Tensor, " N"]]:
    """Edges in both directions, and the group that each member joined."""
    graph = nx.karate_club_graph()
    edges = torch.tensor(list(graph.edges)).T
    groups = torch.tensor([int(graph.nodes[node]["club"] != "Mr. Hi") for node in graph])
    return torch.cat([edges, edges.flip(0)], 1), groups


def adjacency(edges: Int[Tensor, "2 E"], nodes: int) -> Float[Tensor, "N N"]:
    """1 where an edge leads from the row to the column."""
    return torch.zeros(nodes, nodes).index_put((edges[0], edges[1]), torch.ones(()))


def walk_positions(edges: Int[Tensor, "2 E"], nodes: int, steps: int = WALK) -> Float[Tensor, "N steps"]:
    """The probability that a random walk from a node is back after 1, 2, ... steps: the same in every numbering.

    >>> triangle = torch.tensor([[0, 1, 2, 1, 2, 0], [1, 2, 0, 0, 1, 2]])
    >>> walk_positions(triangle, 3, 2)[0]
    tensor([0.0000, 0.5000])
    """
    walk = adjacency(edges, nodes)
    walk = walk / walk.sum(1, keepdim=True).clamp(min=1)
    power, found = torch.eye(nodes), []
    for _ in range(steps):
        power = power @ walk
        found.append(power.diagonal())
    return torch.stack(found, 1)


def laplacian_positions(edges: Int[Tensor, "2 E"], nodes: int, count: int = VECTORS) -> Float[Tensor, "N count"]:
    """The eigenvectors of the normalized Laplacian with the smallest eigenvalues, but the first: smooth coordinates.

    The sign of each is arbitrary; the entry of the largest magnitude is made positive.
    """
    links = adjacency(edges, nodes)
    scale = links.sum(1).clamp(min=1).rsqrt()
    _, vectors = torch.linalg.eigh(torch.eye(nodes) - scale[:, None] * links * scale)
    vectors = vectors[:, 1 : count + 1]
    return vectors * vectors.gather(0, vectors.abs().argmax(0, keepdim=True)).sign()


class GraphTransformer(nn.Module):
    """Blocks whose nodes attend to themselves and to their neighbors; the same for every numbering of the nodes."""

    def __init__(self, features: int, classes: int, *, dim: int = DIM, depth: int = DEPTH) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(features, dim), nn.Linear(dim, classes)
        blocks = (
            PreNormBlock(SelfAttention(dim, heads=2), FeedForward(dim), lambda: nn.LayerNorm(dim)) for _ in range(depth)
        )
        self.blocks, self.norm = nn.ModuleList(blocks), nn.LayerNorm(dim)

    def forward(self, features: Float[Tensor, "N J"], edges: Int[Tensor, "2 E"]) -> Float[Tensor, "N K"]:
        x, mask = self.embed(features)[None], masks.graph(edges, loops=True)
        for block in self.blocks:
            x = block(x, mask=mask)
        return self.head(self.norm(x))[0]


class SetTransformer(nn.Module):
    """Every point attends to every other, without positions, and their mean is classified: no order can matter."""

    def __init__(self, features: int, classes: int, *, dim: int = DIM) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(features, dim), nn.Linear(dim, classes)
        self.block = PreNormBlock(SelfAttention(dim, heads=2), FeedForward(dim), lambda: nn.LayerNorm(dim))

    def forward(
        self, points: Float[Tensor, "B N J"], padding_mask: Bool[Tensor, "B N"] | None = None
    ) -> Float[Tensor, "B K"]:
        """Classes of sets; `padding_mask` is True where there is a point."""
        present = torch.ones(points.shape[:2], dtype=torch.bool) if padding_mask is None else padding_mask
        x = self.block(self.embed(points), mask=masks.dense(present[:, None, None]))
        return self.head((x * present[..., None]).sum(1) / present.sum(1, keepdim=True))


def positions_of(kind: Positions, edges: Int[Tensor, "2 E"], nodes: int) -> Float[Tensor, "N J"]:
    """Standardized positions."""
    make: dict[str, Callable[[Tensor, int], Tensor]] = {"walk": walk_positions, "laplacian": laplacian_positions}
    found = make[kind](edges, nodes)
    return (found - found.mean(0)) / found.std(0).clamp(min=1e-6)


def learn_groups(kind: Positions, seed: int = 0, steps: int = STEPS) -> float:
    """Train on two labels; returns the share of the other 32 members whose group is found."""
    torch.manual_seed(seed)
    edges, groups = karate_club()
    features, known = positions_of(kind, edges, len(groups)), torch.tensor([INSTRUCTOR, OFFICER])
    model = GraphTransformer(features.shape[1], 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(features, edges)[known], groups[known]).backward()
        optimizer.step()
    others = torch.ones(len(groups), dtype=torch.bool).index_fill(0, known, False)
    with torch.no_grad():
        return (model(features, edges).argmax(-1) == groups)[others].float().mean().item()


def main() -> None:
    for kind in ("laplacian", "walk"):
        found = [learn_groups(kind, seed) for seed in range(5)]
        shares = ", ".join(f"{one:.0%}" for one in found)
        print(f"{kind:9} positions: groups of the other 32 members found in five runs: {shares}")


if __name__ == "__main__":
    main()
