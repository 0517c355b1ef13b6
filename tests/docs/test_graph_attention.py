"""The example of attention over graphs and sets: numbering, order and distance, and that it learns."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import networkx as nx
import pytest
import torch
from torch.testing import assert_close

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("graph_attention", ROOT / "examples/graph_attention.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_output_of_a_node_does_not_depend_on_the_numbering(example: ModuleType) -> None:
    torch.manual_seed(0)
    edges, groups = example.karate_club()
    order = torch.randperm(len(groups))
    renumbered = order.argsort()[edges]  # node order[i] is called i
    model = example.GraphTransformer(example.WALK, 2)
    outputs = [model(example.walk_positions(one, len(groups)), one) for one in (edges, renumbered)]
    assert_close(outputs[1], outputs[0][order])


def test_a_node_depends_on_those_within_as_many_edges_as_there_are_layers(example: ModuleType) -> None:
    torch.manual_seed(0)
    edges, groups = example.karate_club()
    features = torch.randn(len(groups), 3)
    model, distance = example.GraphTransformer(3, 2), nx.single_source_shortest_path_length(nx.karate_club_graph(), 0)
    changed = features.clone()
    changed[0] += 5
    moved = (model(changed, edges) - model(features, edges)).abs().amax(-1) > 1e-6
    assert moved.tolist() == [distance[node] <= example.DEPTH for node in range(len(groups))]


def test_walks_return_with_the_probability_of_their_steps(example: ModuleType) -> None:
    pair = torch.tensor([[0, 1], [1, 0]])
    assert_close(example.walk_positions(pair, 2, 4), torch.tensor([[0.0, 1.0, 0.0, 1.0]] * 2))


def test_laplacian_positions_of_neighbors_are_near(example: ModuleType) -> None:
    ring = torch.tensor([[n, (n + 1) % 12] for n in range(12)]).T
    places = example.laplacian_positions(torch.cat([ring, ring.flip(0)], 1), 12, 2)
    distances = torch.cdist(places, places)
    assert distances[0, 1] < distances[0, 3] < distances[0, 6]


def test_the_order_of_points_and_their_padding_do_not_matter(example: ModuleType) -> None:
    torch.manual_seed(0)
    model, points = example.SetTransformer(2, 3), torch.randn(2, 7, 2)
    assert_close(model(points[:, torch.randperm(7)]), model(points))
    padded = torch.cat([points, torch.randn(2, 3, 2)], 1)
    assert_close(model(padded, torch.arange(10).expand(2, -1) < 7), model(points))


def test_two_labels_are_enough_to_find_most_groups(example: ModuleType) -> None:
    assert example.learn_groups("laplacian") > 0.7
