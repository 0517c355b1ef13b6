"""all-MiniLM-L6-v2, the real thing: its vectors of 1,000 real sentences are those of sentence-transformers."""

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
SENTENCES, LONGEST, BATCH = 1000, 256, 32
PACKAGES = ("asyncio", "concurrent", "email", "http", "importlib", "json", "logging", "multiprocessing", "unittest")


@pytest.fixture(scope="module")
def folder() -> Path:
    if not FOLDER.is_dir():
        pytest.skip(f"{FOLDER} is not there. `make real` fetches it.")
    return FOLDER


@pytest.fixture(scope="module")
def reference(folder: Path) -> SentenceTransformer:
    return SentenceTransformer(str(folder), device="cpu", local_files_only=True)


@pytest.fixture(scope="module")
def sentences() -> list[str]:
    """From the documentation inside Python's own library: single sentences, and every tenth text as a whole."""
    found: dict[str, None] = {}
    for count, text in enumerate(docstrings()):
        parts = [text] if count % 10 == 0 else re.split(r"(?<=[.!?])\s+", text)
        found.update(dict.fromkeys(" ".join(part.split()) for part in parts))
    kept = [sentence for sentence in found if len(sentence.split()) >= 3]
    step = len(kept) / SENTENCES
    assert step >= 1, f"only {len(kept)} sentences were found"
    return [kept[int(i * step)] for i in range(SENTENCES)]


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
    tokenizer.enable_truncation(LONGEST)  # as sentence_bert_config.json says
    tokenizer.enable_padding()
    return tokenizer


def embed(model: Any, tokenizer: Tokenizer, sentences: list[str]) -> Tensor:
    """In batches as the sentences come, short beside long, so that most rows are padded."""
    made = []
    for start in range(0, len(sentences), BATCH):
        encoded = tokenizer.encode_batch(sentences[start : start + BATCH])
        ids = torch.tensor([one.ids for one in encoded])
        present = torch.tensor([one.attention_mask for one in encoded]).bool()
        with torch.inference_mode():
            made.append(model(ids, padding_mask=present))
    return torch.cat(made)


def test_sentence_vectors_are_those_of_sentence_transformers(
    folder: Path, reference: SentenceTransformer, sentences: list[str]
) -> None:
    tokenizer, actual = tokenizer_of(folder), from_hugging_face(folder)
    lengths = torch.tensor([sum(one.attention_mask) for one in tokenizer.encode_batch(sentences)])
    assert len(set(sentences)) == SENTENCES
    assert lengths.min() < 8
    assert lengths.max() == LONGEST, "some are long enough to be cut"
    made = embed(actual, tokenizer, sentences)
    expected = reference.encode(sentences, batch_size=BATCH, convert_to_tensor=True, show_progress_bar=False)
    assert made.shape == expected.shape == (SENTENCES, 384)
    assert (made - expected).abs().max().item() <= 1e-5


def test_sentence_transformers_loads_the_export(
    folder: Path, reference: SentenceTransformer, sentences: list[str], tmp_path: Path
) -> None:
    written = to_hugging_face(from_hugging_face(folder), tmp_path / "softlook", tokenizer=folder)
    back = SentenceTransformer(str(written), device="cpu", local_files_only=True)
    short = [sentence for sentence in sentences if len(sentence) < 200][:64]
    one, other = (model.encode(short, convert_to_tensor=True, show_progress_bar=False) for model in (back, reference))
    assert one.shape == other.shape == (64, 384)
    assert (one - other).abs().max().item() <= 1e-6
