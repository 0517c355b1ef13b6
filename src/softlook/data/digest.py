"""Digests of examples and of data files."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from softlook.data.streams import file_errors


def content_digest(text: str) -> int:
    """A 64-bit digest of a text, ignoring case and whitespace; the same on every machine.

    >>> content_digest("Hello  world") == content_digest("hello world ")
    True
    """
    return exact_digest(" ".join(text.casefold().split()))


def exact_digest(text: str) -> int:
    """A 64-bit digest of exactly this text.

    >>> exact_digest("Hello") == exact_digest("hello")
    False
    """
    content = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big")


def file_digests(files: Iterable[Path]) -> dict[str, str]:
    """The SHA-256 of each file."""
    digests = {}
    for path in files:
        with file_errors(path), path.open("rb") as file:
            digests[str(path)] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests


def data_digest(files: Iterable[Path]) -> str:
    """One digest of files in order: of their contents, not of their paths.

    >>> _ = Path("a.txt").write_text("words"), Path("b.txt").write_text("words")
    >>> data_digest([Path("a.txt")]) == data_digest([Path("b.txt")])
    True
    """
    digests = (bytes.fromhex(digest) for path in files for digest in file_digests([path]).values())
    return hashlib.sha256(b"".join(digests)).hexdigest()
