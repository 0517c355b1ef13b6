"""Digests: of an example, to know it again; of files, to know whether the data of a run are still the same."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from softlook.data.opening import told


def content_digest(text: str) -> int:
    """A number of 64 bits that says what a text says: neither case nor spaces count, and it is the same everywhere.

    >>> content_digest("Hello  world") == content_digest("hello world ")
    True
    """
    return exact_digest(" ".join(text.casefold().split()))


def exact_digest(text: str) -> int:
    """A number of 64 bits for exactly this text.

    >>> exact_digest("Hello") == exact_digest("hello")
    False
    """
    content = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big")


def file_digests(files: Iterable[Path]) -> dict[str, str]:
    """The SHA-256 of each file as it lies on the disk."""
    found = {}
    for path in files:
        with told(path), path.open("rb") as file:
            found[str(path)] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def data_digest(files: Iterable[Path]) -> str:
    """One digest for files in their order: what they hold counts, where they lie does not.

    >>> _ = Path("a.txt").write_text("words"), Path("b.txt").write_text("words")
    >>> data_digest([Path("a.txt")]) == data_digest([Path("b.txt")])
    True
    """
    parts = (bytes.fromhex(digest) for path in files for digest in file_digests([path]).values())
    return hashlib.sha256(b"".join(parts)).hexdigest()
