"""Image files: labels from folders and tables, pixels of any format, and errors that name the file."""

from pathlib import Path

import pytest
import torch
from PIL import Image

from softlook.base.errors import DataError
from softlook.recipes.images.files import describe_images, find_images, read_labeled_images, read_pixels


def save(path: Path, color: object = 0, mode: str = "L", size: tuple[int, int] = (6, 4)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, color).save(path)  # pyright: ignore[reportArgumentType]
    return path


def test_a_folder_is_a_class(tmp_path: Path) -> None:
    for name in ("a/1.png", "a/deep/2.jpg", "b/1.png"):
        save(tmp_path / name)
    (tmp_path / "a/notes.txt").write_text("not an image")
    images = read_labeled_images(tmp_path)
    assert sorted(images.labels) == ["a", "a", "b"] and "each file an image" in images.notes[0]


def test_paths_of_a_table_start_at_its_folder(tmp_path: Path) -> None:
    for name in ("1.png", "2.png"):
        save(tmp_path / "photos" / name)
    (tmp_path / "labels.csv").write_text("image,label\nphotos/1.png,cat\nphotos/2.png,dog\n")
    images = read_labeled_images(tmp_path / "labels.csv")
    assert images.labels == ["cat", "dog"]
    assert images.paths == [tmp_path / "photos/1.png", tmp_path / "photos/2.png"]


def test_images_are_resized_and_cropped_around_the_center(tmp_path: Path) -> None:
    wide = Image.new("L", (12, 4), 0)
    wide.paste(200, (4, 0, 8, 4))  # the middle third
    wide.save(tmp_path / "wide.png")
    assert torch.equal(read_pixels(tmp_path / "wide.png", 4, 1), torch.full((1, 4, 4), 200, dtype=torch.uint8))


@pytest.mark.parametrize(
    ("mode", "color", "suffix"), [("RGBA", (9, 8, 7, 255), "png"), ("P", 3, "gif"), ("1", 1, "png")]
)
def test_every_mode_is_read(mode: str, color: object, suffix: str, tmp_path: Path) -> None:
    path = save(tmp_path / f"one.{suffix}", color, mode)
    assert read_pixels(path, 4, 3).shape == (3, 4, 4) and read_pixels(path, 4, 1).shape == (1, 4, 4)


def test_gray_images_have_one_channel(tmp_path: Path) -> None:
    gray = [save(tmp_path / f"{n}.png", n) for n in range(3)]
    assert describe_images(gray) == (4, 1)
    assert describe_images([*gray, save(tmp_path / "c.png", (1, 2, 3), "RGB")]) == (4, 3)


def test_a_broken_image_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    with pytest.raises(DataError, match=r"broken\.png: this file is not an image"):
        read_pixels(tmp_path / "broken.png", 4, 1)
    with pytest.raises(DataError, match="does not exist"):
        read_pixels(tmp_path / "missing.png", 4, 1)


def test_a_folder_without_classes_is_an_error(tmp_path: Path) -> None:
    save(tmp_path / "1.png")
    with pytest.raises(DataError, match="no folders of images"):
        read_labeled_images(tmp_path)
    assert find_images([tmp_path]) == [tmp_path / "1.png"]
