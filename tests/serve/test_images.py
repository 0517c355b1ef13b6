"""Images over HTTP get the classes of `softlook classify`, whatever other images are in the batch."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from starlette.testclient import TestClient

from softlook.models import ViT, ViTConfig
from softlook.recipes.images.predict import ImageClassifier, patch_attention
from softlook.recipes.images.serving import ServedImageModel
from softlook.serve.app import create_app
from softlook.serve.loaded_model import LoadedImageModel
from softlook.serve.registry import ModelRegistry
from tests.serve.tiny_models import decoder, loaded_model

ROUTE = "/v1/images/classify"


@pytest.fixture(scope="module")
def classifier() -> ImageClassifier:
    torch.manual_seed(0)
    model = ViT(ViTConfig(image_size=(8, 8), patch_size=4, dim=16, depth=2, heads=2, classes=3))
    torch.nn.init.normal_(model.head.to_classes.weight)  # pyright: ignore[reportArgumentType, reportAttributeAccessIssue]
    return ImageClassifier(model.eval(), ["cat", "dog", "owl"])


@pytest.fixture(scope="module")
def client(classifier: ImageClassifier) -> Iterator[TestClient]:
    images = LoadedImageModel("pets", ServedImageModel(classifier))
    registry = ModelRegistry([images, loaded_model("gpt", decoder())])
    with TestClient(create_app(registry), base_url="http://localhost") as client:
        yield client
    registry.close()


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("photos")
    generator = torch.Generator().manual_seed(0)
    paths = [folder / f"{number}.png" for number in range(5)]
    for path in paths:
        Image.frombytes("RGB", (9, 12), bytes(torch.randint(256, (324,), generator=generator).tolist())).save(path)
    return paths


def encode(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def post(client: TestClient, images: list[str], **body: Any) -> Any:
    return client.post(ROUTE, json={"model": "pets", "images": images, **body})


def test_the_classes_are_those_of_the_classifier(
    client: TestClient, classifier: ImageClassifier, paths: list[Path]
) -> None:
    data = post(client, [encode(path) for path in paths]).json()["data"]
    for item, expected in zip(data, classifier.classify(paths), strict=True):
        assert item["label"] == expected.label
        assert {one["label"]: one["score"] for one in item["scores"]} == pytest.approx(expected.classes, abs=1e-5)
        assert item["attention"] is None


def test_an_image_gets_the_same_numbers_alone_and_in_a_batch(client: TestClient, paths: list[Path]) -> None:
    together = post(client, [encode(path) for path in paths]).json()["data"]
    for path, item in zip(paths, together, strict=True):
        (alone,) = post(client, [encode(path)]).json()["data"]
        assert alone["scores"] == item["scores"]


def test_attention_to_the_patches_is_that_of_the_figure(
    client: TestClient, classifier: ImageClassifier, paths: list[Path]
) -> None:
    (item,) = post(client, [f"data:image/png;base64,{encode(paths[0])}"], attention=True, top_k=1).json()["data"]
    expected = patch_attention(classifier.model, classifier.read(paths[:1]))[0]
    torch.testing.assert_close(torch.tensor(item["attention"]), expected, atol=1e-5, rtol=0)
    assert len(item["scores"]) == 1


@pytest.mark.parametrize(
    ("image", "message"),
    [
        ("no base64!", "images[0]: expected the bytes of an image file in base64"),
        ("AAAA", "images[0]: this file is not an image that can be read"),
        ("text/plain,AAAA", "images[0]: expected base64, or a data URL"),
    ],
)
def test_what_is_no_image_is_an_error_that_names_it(client: TestClient, image: str, message: str) -> None:
    response = post(client, [image])
    assert response.status_code == 400 and response.json()["error"]["message"].startswith(message)


def test_an_enormous_image_is_an_error(client: TestClient, tmp_path: Path) -> None:
    Image.new("1", (8001, 8001)).save(tmp_path / "large.png")
    response = post(client, [encode(tmp_path / "large.png")])
    assert response.status_code == 400 and "8,001 x 8,001 pixels" in response.json()["error"]["message"]


def test_other_routes_name_the_route_of_images(client: TestClient, paths: list[Path]) -> None:
    response = client.post("/v1/classify", json={"model": "pets", "text": "a cat"})
    assert response.status_code == 400 and response.json()["error"]["message"].endswith(f"Use {ROUTE}")
    response = client.post(ROUTE, json={"model": "gpt", "images": [encode(paths[0])]})
    assert response.status_code == 400 and "does not support images" in response.json()["error"]["message"]
    (card, _) = client.get("/v1/models").json()["data"]
    assert card["capabilities"] == ["images"] and card["labels"] == ["cat", "dog", "owl"]
