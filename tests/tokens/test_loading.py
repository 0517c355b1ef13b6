"""Hostile tokenizer.json files are rejected before they use memory; common ones are loaded."""

import base64
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from softlook.base.errors import WeightsError
from softlook.tokens import TextTokenizer, train_tokenizer
from softlook.tokens.loading import MAX_TOKENIZER_BYTES, check_bounds, load_tokenizer

SOURCE = Path(__file__).parents[2] / "src/softlook"
PLAIN: dict[str, Any] = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [],
    "normalizer": None,
    "pre_tokenizer": None,
    "post_processor": None,
    "decoder": None,
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []},
}
LONG = "a" * 1_000_000


def padding(**changes: Any) -> dict[str, Any]:
    usual = {"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0}
    return {"padding": {**usual, "pad_type_id": 0, "pad_token": "a"} | changes}


def replacing(pattern: dict[str, str], content: str, times: int = 1, *, named: bool = True) -> dict[str, Any]:
    one: dict[str, Any] = {"pattern": pattern, "content": content}
    one = {"type": "Replace", **one} if named else one
    many = {"normalizers": [one] * times}
    return {"normalizer": {"type": "Sequence", **many} if named else many}


def template(single: list[Any], pair: list[Any], ids: int = 1) -> dict[str, Any]:
    special = {"a": {"id": "a", "ids": [0] * ids, "tokens": ["a"] * ids}}
    return {"post_processor": {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}}


def charsmap(longest: int) -> str:
    return base64.b64encode((4).to_bytes(4, "little") + b"\0\0\0\0" + b"x" * longest + b"\0").decode()


SPECIAL = {"SpecialToken": {"id": "a", "type_id": 0}}
TEXT_A, TEXT_B = {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}
BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": False}
HOSTILE: dict[str, tuple[dict[str, Any], str]] = {
    "padding far beyond memory": (
        padding(strategy={"Fixed": 100_000_000_000}),
        "padding.strategy.Fixed: expected at most",
    ),
    "padding to a huge length": (padding(strategy={"Fixed": 100_000_000}), "padding.strategy.Fixed"),
    "padding to a huge multiple": (padding(pad_to_multiple_of=1_000_000_000), "padding.pad_to_multiple_of"),
    "a long padding token": (padding(pad_token=LONG), "padding.pad_token: expected a string of at most 256 characters"),
    "a stride close to max_length": (
        {"truncation": {"max_length": 1000, "stride": 999, "strategy": "LongestFirst", "direction": "Right"}},
        "truncation.stride: expected at most 875, got 999",
    ),
    "a long prepend": (
        {"normalizer": {"type": "Prepend", "prepend": LONG}},
        "prepend: expected a string of at most 16",
    ),
    "a long prepend, without a type": ({"normalizer": {"prepend": LONG}}, "prepend"),
    "a long replacement for a letter": (replacing({"String": "a"}, LONG), "growth of a text: expected at most 32"),
    "repeated replacements": (replacing({"String": "a"}, "aaaa", 20), "growth of a text"),
    "repeated replacements, without a type": (replacing({"String": "a"}, "aaaa", 20, named=False), "growth of a text"),
    "insertions between letters": (replacing({"String": ""}, "a", 20), "growth of a text"),
    "insertions between letters, by regex": (replacing({"Regex": "q*"}, "a", 20), "growth of a text"),
    "repeated byte-level pre-tokenization": (
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [BYTES] * 20}},
        "growth of a text: expected at most 32, got 1,048,576",
    ),
    "repeated byte-level normalization": (
        {"normalizer": {"type": "Sequence", "normalizers": [{"type": "ByteLevel"}] * 20}},
        "growth of a text",
    ),
    "a charsmap with long replacements": (
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap(100_000)}},
        "precompiled_charsmap, bytes for a character: expected at most 64, got 100,000",
    ),
    "many normalizers": (
        {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}] * 100_000}},
        "normalizer: components: expected at most 256",
    ),
    "a template that repeats the text": (
        template([TEXT_A] * 900, [TEXT_A, TEXT_B]),
        "post_processor.single: texts: expected at most 1",
    ),
    "a template that repeats the pair": (
        template([TEXT_A], [TEXT_A, TEXT_B] * 500),
        "post_processor.pair: texts: expected at most 2",
    ),
    "many special tokens": (
        template([TEXT_A, *[SPECIAL] * 500], [TEXT_A, TEXT_B]),
        "post_processor.single: special tokens",
    ),
    "special tokens of many ids": (
        template([TEXT_A, *[SPECIAL] * 100], [TEXT_A, TEXT_B], 1000),
        "post_processor.single: special tokens: expected at most 256, got 100,000",
    ),
    "a long replacement in the decoder": (
        {"decoder": {"type": "Replace", "pattern": {"String": "a"}, "content": LONG}},
        "decoder: growth of a text",
    ),
    "a huge strip": ({"decoder": {"type": "Strip", "content": "a", "start": 10**12, "stop": 0}}, "decoder: start"),
    "a long suffix": ({"model": {**PLAIN["model"], "end_of_word_suffix": LONG}}, "model.end_of_word_suffix"),
    "a long prefix": ({"model": {**PLAIN["model"], "continuing_subword_prefix": LONG}}, "model.continuing_sub"),
    "long words": (
        {"model": {"type": "WordPiece", "vocab": {"a": 0}, "unk_token": "a", "max_input_chars_per_word": 10**12}},
        "model.max_input_chars_per_word: expected at most 200",
    ),
    "a long token": ({"model": {**PLAIN["model"], "vocab": {LONG: 0}}}, "model.vocab: a token's length"),
    "a long Unigram piece": (
        {"model": {"type": "Unigram", "unk_id": 0, "vocab": [["a", 0.0], [LONG, -1.0]]}},
        "model.vocab: a piece's length",
    ),
    "long added tokens": (
        {"added_tokens": [{"id": n, "content": LONG + str(n), "special": True} for n in range(5)]},
        "added_tokens: total characters",
    ),
    "a huge id": ({"model": {**PLAIN["model"], "vocab": {"a": 2**32 - 1}}}, "model.vocab: an id"),
}


def content(changes: dict[str, Any]) -> bytes:
    return json.dumps(PLAIN | changes).encode()


@pytest.mark.parametrize("name", HOSTILE)
def test_amplifying_fields_raise_with_their_name(name: str) -> None:
    changes, message = HOSTILE[name]
    with pytest.raises(WeightsError, match=re.escape(message)):
        check_bounds(json.loads(content(changes)))


def test_hostile_files_neither_use_memory_nor_crash(tmp_path: Path) -> None:
    for number, (changes, _) in enumerate(HOSTILE.values()):
        (tmp_path / f"{number}.json").write_bytes(content(changes))
    code = """
import resource, sys, warnings
from pathlib import Path
from softlook.base.errors import WeightsError
from softlook.weights import read_tokenizer
now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now + (512 << 20),) * 2)
for path in sorted(Path(sys.argv[1]).iterdir()):
    print(path.name, flush=True)
    try:
        read_tokenizer(path)
    except WeightsError as error:
        assert "is rejected" in str(error) and "use the one that belongs to the model" in str(error), error
    else:
        sys.exit(f"{path} is accepted")
"""
    if not Path("/proc/self/statm").exists():
        pytest.skip("this system does not report the memory of a process")
    result = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, (result.stdout[-200:], result.stderr[-2000:])


VALID: dict[str, dict[str, Any]] = {
    "padding": padding(strategy={"Fixed": 512}, pad_to_multiple_of=8),
    "truncated": {"truncation": {"max_length": 384, "stride": 128, "strategy": "LongestFirst", "direction": "Right"}},
    "llama": {
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            ],
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
    },
    "albert": replacing({"String": "``"}, '"')
    | template([SPECIAL, TEXT_A, SPECIAL], [SPECIAL, TEXT_A, SPECIAL, TEXT_B, SPECIAL]),
    "xlm-r": replacing({"Regex": " {2,}"}, " ", 2)
    | {"pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}},
    "gpt-2": {"pre_tokenizer": BYTES, "decoder": BYTES, "post_processor": BYTES},
}


@pytest.mark.parametrize("name", VALID)
def test_common_tokenizers_are_loaded(name: str) -> None:
    assert load_tokenizer(content(VALID[name])).encode("a b") is not None


@pytest.mark.parametrize("kind", ["bpe", "characters", "bytes", "words"])
def test_softlook_tokenizers_round_trip(kind: Any) -> None:
    made = train_tokenizer(["she sells sea shells"] * 3, model_type=kind, vocab_size=300)
    assert load_tokenizer(made.to_str().encode()).to_str() == made.to_str()


def test_a_too_large_file_is_not_parsed() -> None:
    with pytest.raises(WeightsError, match="expected at most"):
        load_tokenizer(bytes(MAX_TOKENIZER_BYTES + 1))


def test_a_panic_becomes_an_error() -> None:
    strips = {"decoder": {"type": "Strip", "content": "b", "start": 0, "stop": 2}}
    tokenizer = TextTokenizer(load_tokenizer(content(strips)))
    with pytest.raises(ValueError, match="failed to decode these ids"):
        tokenizer.decode([1])


def test_tokenizers_are_loaded_in_one_place_only() -> None:
    """All other modules load tokenizers through tokens/loading.py, which checks their bounds."""
    constructors = re.compile(r"\bTokenizer\.from_(?:file|str|buffer|pretrained)\b")
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if constructors.search(path.read_text("utf-8"))
    }
    assert found == {"tokens/loading.py"}


@pytest.mark.parametrize("kind", ["bpe", "characters", "bytes", "words"])
def test_a_very_long_word_is_encoded(kind: Any) -> None:
    tokenizer = TextTokenizer(train_tokenizer(["banana", "she sells sea shells"] * 3, model_type=kind, vocab_size=300))
    assert 1 <= len(tokenizer.encode(["an" * 50_000])[0]) <= 100_001


def test_a_catastrophic_regular_expression_raises() -> None:
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    tokenizer = TextTokenizer(load_tokenizer(content({"pre_tokenizer": split})))
    with pytest.raises(ValueError, match="failed to encode this text"):
        tokenizer.encode(["a" * 60 + "b"])
