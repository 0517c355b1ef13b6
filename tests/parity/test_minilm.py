"""The published all-MiniLM-L6-v2: its embeddings of 1,000 sentences match sentence-transformers."""

import ast
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer
from torch import Tensor

from softlook.weights import from_hugging_face, read_tokenizer, to_hugging_face
from tests.parity.real_weights import real_weights

pytestmark = pytest.mark.slow
FOLDER = real_weights("all-MiniLM-L6-v2")
SENTENCES, MAX_LENGTH, BATCH = 1000, 256, 32
PACKAGES = ("asyncio", "concurrent", "email", "http", "importlib", "json", "logging", "multiprocessing", "unittest")


@pytest.fixture(scope="module")
def folder() -> Path:
    if not FOLDER.is_dir():
        pytest.skip(f"{FOLDER} does not exist. `make real` downloads it.")
    return FOLDER


@pytest.fixture(scope="module")
def reference(folder: Path) -> SentenceTransformer:
    return SentenceTransformer(str(folder), device="cpu", local_files_only=True)


@pytest.fixture(scope="module")
def sentences() -> list[str]:
    """Docstrings of Python's standard library: single sentences, and every tenth docstring as a whole."""
    found: dict[str, None] = {}
    for count, text in enumerate(docstrings()):
        parts = [text] if count % 10 == 0 else re.split(r"(?<=[.!?])\s+", text)
        found.update(dict.fromkeys(" ".join(part.split()) for part in parts))
    selected = [sentence for sentence in found if len(sentence.split()) >= 3]
    step = len(selected) / SENTENCES
    assert step >= 1, f"only {len(selected)} sentences were found"
    return [selected[int(i * step)] for i in range(SENTENCES)]


def docstrings() -> Iterator[str]:
    library = Path(sysconfig.get_path("stdlib"))
    for path in sorted(path for package in PACKAGES for path in (library / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text:
                    yield text


def tokenizer_of(folder: Path) -> Tokenizer:
    tokenizer = read_tokenizer(folder)
    tokenizer.enable_truncation(MAX_LENGTH)  # as in sentence_bert_config.json
    tokenizer.enable_padding()
    return tokenizer


def embed(model: Any, tokenizer: Tokenizer, sentences: list[str]) -> Tensor:
    """Embeddings in batches of sentences with different lengths, so that most rows are padded."""
    embeddings = []
    for start in range(0, len(sentences), BATCH):
        encoded = tokenizer.encode_batch(sentences[start : start + BATCH])
        ids = torch.tensor([one.ids for one in encoded])
        padding_mask = torch.tensor([one.attention_mask for one in encoded]).bool()
        with torch.inference_mode():
            embeddings.append(model(ids, padding_mask=padding_mask))
    return torch.cat(embeddings)


def test_sentence_embeddings_match_sentence_transformers(
    folder: Path, reference: SentenceTransformer, sentences: list[str]
) -> None:
    tokenizer, actual = tokenizer_of(folder), from_hugging_face(folder)
    lengths = torch.tensor([sum(one.attention_mask) for one in tokenizer.encode_batch(sentences)])
    assert len(set(sentences)) == SENTENCES
    assert lengths.min() < 8
    assert lengths.max() == MAX_LENGTH, "no sentence is truncated"
    embeddings = embed(actual, tokenizer, sentences)
    expected = reference.encode(sentences, batch_size=BATCH, convert_to_tensor=True, show_progress_bar=False)
    assert embeddings.shape == expected.shape == (SENTENCES, 384)
    assert (embeddings - expected).abs().max().item() <= 1e-5


def test_sentence_transformers_loads_the_export(
    folder: Path, reference: SentenceTransformer, sentences: list[str], tmp_path: Path
) -> None:
    exported = to_hugging_face(from_hugging_face(folder), tmp_path / "softlook", tokenizer=folder)
    back = SentenceTransformer(str(exported), device="cpu", local_files_only=True)
    short = [sentence for sentence in sentences if len(sentence) < 200][:64]
    one, other = (model.encode(short, convert_to_tensor=True, show_progress_bar=False) for model in (back, reference))
    assert one.shape == other.shape == (64, 384)
    assert (one - other).abs().max().item() <= 1e-6
