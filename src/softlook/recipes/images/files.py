"""Image files: labeled ones from folders and tables, and their pixels, read with Pillow."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import torch
from jaxtyping import Float, UInt8
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from softlook.base.errors import DataError
from softlook.data import read_labeled
from softlook.data.class_folders import find_class_folders
from softlook.data.files import PathOrPaths, files_below

SUFFIXES = frozenset((".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"))
MAX_PIXELS = 64_000_000
"""Of an image file: a small file can be an enormous image."""
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")


@dataclass(frozen=True)
class LabeledImages:
    """Paths of images, and their labels."""

    paths: list[Path]
    labels: list[str]
    notes: tuple[str, ...] = ()
    """What was inferred about the files, in sentences."""


def read_labeled_images(data: PathOrPaths, *, image: str | None = None, label: str | None = None) -> LabeledImages:
    """Images from folders, one per class, or from a table with a column of paths, which start at the table's folder.

    >>> for name in ("cats/1.png", "cats/2.png", "dogs/1.png"):
    ...     Path("pets", name).parent.mkdir(parents=True, exist_ok=True)
    ...     Image.new("RGB", (4, 4)).save(Path("pets", name))
    >>> read_labeled_images("pets").labels
    ['cats', 'cats', 'dogs']
    """
    classes = find_class_folders(data, "image", is_image)
    if classes is not None:
        pairs = [(path, name) for name, paths in classes.files.items() for path in paths]
        return LabeledImages([path for path, _ in pairs], [name for _, name in pairs], classes.notes())
    given = [Path(data)] if isinstance(data, str | Path) else [Path(one) for one in data]
    if any(path.is_dir() for path in given):
        what = "this folder has no folders of images, of which each is a class"
        names = ", ".join(sorted(SUFFIXES))
        raise DataError(
            what, file=given[0], help=f"put the images of each class in a folder of its own; known: {names}"
        )
    examples = read_labeled(data, text=image, label=label)
    rows = list(examples)
    paths = [_resolve_path(example.origin.path if example.origin else given[0], example.text) for example in rows]
    return LabeledImages(paths, [example.label for example in rows], examples.notes)


def find_images(paths: Iterable[Path]) -> list[Path]:
    """The given files, and the images below the given folders."""
    found: list[Path] = []
    for path in paths:
        images = [one for one in files_below(path) if is_image(one)] if path.is_dir() else [path]
        if not images:
            raise DataError("there are no images below this folder", file=path)
        found += images
    return found


def is_image(path: Path) -> bool:
    """Whether a file counts as an image, by its suffix."""
    return path.suffix.lower() in SUFFIXES


def read_pixels(file: Path | BytesIO, size: int, channels: int) -> UInt8[Tensor, "channels size size"]:
    """An image as a square: resized so that its shorter side fits, and cropped around its center."""
    with _open(file) as image:
        upright = ImageOps.exif_transpose(image).convert("L" if channels == 1 else "RGB")
        square = ImageOps.fit(upright, (size, size), Image.Resampling.BILINEAR)
        pixels = torch.frombuffer(bytearray(square.tobytes()), dtype=torch.uint8)
        return pixels.view(size, size, channels).permute(2, 0, 1)


def read_images(paths: Sequence[Path], size: int, channels: int) -> UInt8[Tensor, "N channels size size"]:
    """All images in memory, one byte per pixel and channel."""
    return torch.stack([read_pixels(path, size, channels) for path in paths])


def scale_pixels(images: UInt8[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Bytes as numbers from -1 to 1, which the model reads.

    >>> scale_pixels(torch.tensor([0, 255], dtype=torch.uint8))
    tensor([-1.,  1.])
    """
    return images.float() / 127.5 - 1


def describe_images(paths: Sequence[Path], most: int = 200) -> tuple[int, int]:
    """The median shorter side, and the number of channels, of some of the images: 1 if all are gray."""
    some = paths[:: max(len(paths) // most, 1)]
    sizes, modes = zip(*_headers(some), strict=True)
    return sorted(sizes)[len(sizes) // 2], 1 if set(modes) <= {"1", "L", "LA", "I;16"} else 3


def _headers(paths: Iterable[Path]) -> Iterator[tuple[int, str]]:
    for path in paths:
        with _open(path) as image:
            yield min(image.size), image.mode


@contextmanager
def _open(file: Path | BytesIO) -> Iterator[Image.Image]:
    """An open image; errors name the file."""
    path = file if isinstance(file, Path) else None
    try:
        image = Image.open(file, formats=FORMATS)
        if image.width * image.height > MAX_PIXELS:
            raise ValueError(f"{image.width:,} x {image.height:,} pixels, the maximum is {MAX_PIXELS:,} in total")
        image.load()
    except FileNotFoundError:
        raise DataError("this image does not exist", file=path) from None
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError, ValueError) as error:
        why = str(error) if path else str(error).split("<")[0] or type(error).__name__
        raise DataError("this file is not an image that can be read", file=path, why=why) from None
    with image:
        yield image


def _resolve_path(table: Path, path: str) -> Path:
    return Path(path) if Path(path).is_absolute() else Path(table).parent / path
