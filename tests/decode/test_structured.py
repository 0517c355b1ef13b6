"""Structured output. Without llguidance, only the error is tested."""

import json
import re
import sys
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from softlook.base.errors import ConfigError
from softlook.decode import Multinomial, SequenceView, bad_words, generate, json_schema, regex, stream
from softlook.models import GPT, GPTConfig
from tests.decode.tokenizers import TOKENIZERS

TOKENIZER = TOKENIZERS["bpe"]
MAX_NEW_TOKENS = 400


def model(tokenizer: Any = TOKENIZER, more: int = 0) -> GPT:
    torch.manual_seed(0)
    return GPT(
        GPTConfig(vocab_size=tokenizer.vocab_size + more, context=MAX_NEW_TOKENS + 8, dim=8, depth=1, heads=1)
    ).eval()


LEAVES: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.integers(0, 9).map(lambda length: {"type": "string", "maxLength": length}),
    st.tuples(st.integers(-99, 0), st.integers(1, 999)).map(
        lambda ends: {"type": "integer", "minimum": ends[0], "maximum": ends[1]}
    ),
    st.lists(st.sampled_from(["a", "bé", 'q"uote', "日本"]), min_size=1, unique=True).map(
        lambda names: {"enum": names}
    ),
)


def nested_schema(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    arrays = st.tuples(inner, st.integers(0, 3)).map(lambda of: {"type": "array", "items": of[0], "maxItems": of[1]})
    return arrays | st.dictionaries(st.sampled_from(["name", "日", "x y"]), inner, max_size=3).flatmap(object_schema)


def object_schema(properties: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    some = st.lists(st.sampled_from(sorted(properties)), unique=True) if properties else st.just([])
    closed = {"type": "object", "properties": properties, "additionalProperties": False}
    return some.map(lambda required: {**closed, "required": required})


SCHEMAS = st.recursive(LEAVES, nested_schema, max_leaves=5)


def conforms(value: Any, schema: dict[str, Any]) -> bool:
    """Whether a value conforms to a schema of the types above."""
    if "enum" in schema:
        return value in schema["enum"]
    kind = schema["type"]
    if kind == "object":
        named = isinstance(value, dict) and set(schema["required"]) <= set(value) <= set(schema["properties"])
        return named and all(conforms(value[name], schema["properties"][name]) for name in value)
    if kind == "array":
        return (
            isinstance(value, list)
            and len(value) <= schema["maxItems"]
            and all(conforms(v, schema["items"]) for v in value)
        )
    if kind == "integer":
        return type(value) is int and schema["minimum"] <= value <= schema["maximum"]
    if kind == "string":
        return isinstance(value, str) and len(value) <= schema["maxLength"]
    return isinstance(value, bool) if kind == "boolean" else value is None


@settings(max_examples=50)
@given(schema=SCHEMAS, seed=st.integers(0, 1000))
def test_output_conforms_to_the_json_schema(schema: dict[str, Any], seed: int) -> None:
    pytest.importorskip("llguidance")
    processor, session = json_schema(TOKENIZER, schema), model()
    outputs = generate(
        session,
        [[5], [6, 7]],
        logits_processors=[processor],
        sampler=Multinomial(seed=seed),
        eos_ids=TOKENIZER.eos_id,
        max_new_tokens=MAX_NEW_TOKENS,
    )
    for output in outputs:
        assert output.finish_reason == "eos"
        assert conforms(json.loads(TOKENIZER.decode(output.ids)), schema)


@pytest.mark.parametrize("pattern", [r"[0-9]{4}-[0-9]{2}", r"(yes|no|naïve)", r"(ab){2,5}€?"])
@pytest.mark.parametrize("name", ["bpe", "bytes", "sentencepiece"])
def test_output_matches_the_regular_expression(name: str, pattern: str) -> None:
    pytest.importorskip("llguidance")
    tokenizer = TOKENIZERS[name]
    processor = regex(tokenizer, pattern)
    for number in range(5):
        tokens = stream(
            model(tokenizer),
            [5],
            logits_processors=[processor],
            sampler=Multinomial(seed=1),
            eos_ids=tokenizer.eos_id,
            max_new_tokens=60,
            index=number,
        )
        ids = [token.id for token in tokens]
        assert re.fullmatch(pattern, tokenizer.decode([5, *ids])[len(tokenizer.decode([5])) :])


def test_rows_may_be_reordered() -> None:
    pytest.importorskip("llguidance")
    tokenizer = TOKENIZERS["bytes"]
    processor = regex(tokenizer, "[ab]c|d")
    a, d = (tokenizer.encode([text])[0] for text in "ad")

    def allowed(*new: list[int]) -> list[str]:
        logits = processor(torch.zeros(len(new), tokenizer.vocab_size), [SequenceView([0], ids) for ids in new])
        return [
            tokenizer.tokenizer.decode(row.isfinite().nonzero()[:, 0].tolist(), skip_special_tokens=False)
            for row in logits
        ]

    assert allowed([], a) == ["abd", "c"]
    assert allowed(d, a, []) == ["</s>", "c", "abd"]
    with pytest.raises(ConfigError, match="violates the grammar"):
        allowed([*a, *a])


def test_ids_beyond_the_tokenizer_are_masked() -> None:
    pytest.importorskip("llguidance")
    processor = regex(TOKENIZER, "[ab]{3}")
    output = generate(model(more=9), [[5]], logits_processors=[processor], eos_ids=TOKENIZER.eos_id, max_new_tokens=9)[
        0
    ]
    assert output.finish_reason == "eos" and max(output.ids) < TOKENIZER.vocab_size


def test_unsatisfiable_constraints_raise_an_error() -> None:
    pytest.importorskip("llguidance")
    tokenizer = TOKENIZERS["bytes"]
    processors = [regex(tokenizer, "a"), bad_words([tokenizer.encode(["a"])[0]])]
    with pytest.raises(ConfigError, match="mask every token at new token 1"):
        generate(model(tokenizer), [[5]], logits_processors=processors, eos_ids=tokenizer.eos_id, max_new_tokens=3)


@pytest.mark.parametrize("make", [lambda: json_schema(TOKENIZER, {"type": "nothing"}), lambda: regex(TOKENIZER, "(")])
def test_unsupported_grammars_raise_errors(make: Any) -> None:
    pytest.importorskip("llguidance")
    with pytest.raises(ConfigError, match="unsupported grammar|cannot be followed"):
        make()


def test_unsupported_tokenizer_raises_an_error() -> None:
    pytest.importorskip("llguidance")
    with pytest.raises(ConfigError, match="the bytes of this tokenizer's tokens are unknown"):
        regex(TOKENIZERS["characters"], "a")


def test_missing_dependency_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(ConfigError, match=r"pip install softlook\[constrained\]"):
        json_schema(TOKENIZER, {"type": "null"})
