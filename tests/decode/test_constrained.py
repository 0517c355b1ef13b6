"""Answers of a form that is told beforehand. What works it out is an extra: without it, only the error is tested."""

import json
import re
import sys
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from softlook.base.errors import ConfigError
from softlook.decode import Said, forbid, generate, json_schema, regex, sample, stream
from softlook.models import GPT, GPTConfig
from tests.decode.tokenizers import TOKENIZERS

TOKENIZER = TOKENIZERS["bpe"]
LONGEST = 400


def model(tokenizer: Any = TOKENIZER, more: int = 0) -> GPT:
    torch.manual_seed(0)
    return GPT(GPTConfig(vocab=tokenizer.vocab + more, context=LONGEST + 8, dim=8, depth=1, heads=1)).eval()


LEAVES: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.integers(0, 9).map(lambda most: {"type": "string", "maxLength": most}),
    st.tuples(st.integers(-99, 0), st.integers(1, 999)).map(
        lambda ends: {"type": "integer", "minimum": ends[0], "maximum": ends[1]}
    ),
    st.lists(st.sampled_from(["a", "bé", 'q"uote', "日本"]), min_size=1, unique=True).map(
        lambda names: {"enum": names}
    ),
)


def grown(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    arrays = st.tuples(inner, st.integers(0, 3)).map(lambda of: {"type": "array", "items": of[0], "maxItems": of[1]})
    return arrays | st.dictionaries(st.sampled_from(["name", "日", "x y"]), inner, max_size=3).flatmap(made_object)


def made_object(properties: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    some = st.lists(st.sampled_from(sorted(properties)), unique=True) if properties else st.just([])
    closed = {"type": "object", "properties": properties, "additionalProperties": False}
    return some.map(lambda required: {**closed, "required": required})


SCHEMAS = st.recursive(LEAVES, grown, max_leaves=5)


def fits(value: Any, schema: dict[str, Any]) -> bool:
    """Is it as the schema says? Only what the schemas above say."""
    if "enum" in schema:
        return value in schema["enum"]
    kind = schema["type"]
    if kind == "object":
        named = isinstance(value, dict) and set(schema["required"]) <= set(value) <= set(schema["properties"])
        return named and all(fits(value[name], schema["properties"][name]) for name in value)
    if kind == "array":
        return (
            isinstance(value, list)
            and len(value) <= schema["maxItems"]
            and all(fits(v, schema["items"]) for v in value)
        )
    if kind == "integer":
        return type(value) is int and schema["minimum"] <= value <= schema["maximum"]
    if kind == "string":
        return isinstance(value, str) and len(value) <= schema["maxLength"]
    return isinstance(value, bool) if kind == "boolean" else value is None


@settings(max_examples=50)
@given(schema=SCHEMAS, seed=st.integers(0, 1000))
def test_whatever_the_schema_the_answer_is_json_that_fits_it(schema: dict[str, Any], seed: int) -> None:
    pytest.importorskip("llguidance")
    rule, speaker = json_schema(TOKENIZER, schema), model()
    answers = generate(speaker, [[5], [6, 7]], rules=[rule], pick=sample(seed=seed), end=TOKENIZER.end, longest=LONGEST)
    for answer in answers:
        assert answer.reason == "end"
        assert fits(json.loads(TOKENIZER.decode(answer.ids)), schema)


@pytest.mark.parametrize("pattern", [r"[0-9]{4}-[0-9]{2}", r"(yes|no|naïve)", r"(ab){2,5}€?"])
@pytest.mark.parametrize("name", ["bpe", "bytes", "sentencepiece"])
def test_an_answer_is_as_the_regular_expression_says(name: str, pattern: str) -> None:
    pytest.importorskip("llguidance")
    tokenizer = TOKENIZERS[name]
    rule = regex(tokenizer, pattern)
    for number in range(5):
        tokens = stream(
            model(tokenizer), [5], rules=[rule], pick=sample(seed=1), end=tokenizer.end, longest=60, number=number
        )
        ids = [token.id for token in tokens]
        assert re.fullmatch(pattern, tokenizer.decode([5, *ids])[len(tokenizer.decode([5])) :])


def test_rows_may_change_places_and_an_unknown_beginning_is_read_anew() -> None:
    pytest.importorskip("llguidance")
    words = TOKENIZERS["bytes"]
    rule = regex(words, "[ab]c|d")
    a, d = (words.encode([text])[0] for text in "ad")

    def allowed(*new: list[int]) -> list[str]:
        ruled = rule(torch.zeros(len(new), words.vocab), [Said([0], ids) for ids in new])
        return [
            words.tokenizer.decode(row.isfinite().nonzero()[:, 0].tolist(), skip_special_tokens=False) for row in ruled
        ]

    assert allowed([], a) == ["abd", "c"]
    assert allowed(d, a, []) == ["</s>", "c", "abd"]
    with pytest.raises(ConfigError, match="is no beginning of the form that was told"):
        allowed([*a, *a])


def test_words_that_only_the_model_has_are_never_said() -> None:
    pytest.importorskip("llguidance")
    rule = regex(TOKENIZER, "[ab]{3}")
    answer = generate(model(more=9), [[5]], rules=[rule], end=TOKENIZER.end, longest=9)[0]
    assert answer.reason == "end" and max(answer.ids) < TOKENIZER.vocab


def test_a_form_and_a_rule_that_leave_nothing_are_told() -> None:
    pytest.importorskip("llguidance")
    words = TOKENIZERS["bytes"]
    rules = [regex(words, "a"), forbid([words.encode(["a"])[0]])]
    with pytest.raises(ConfigError, match="the rules leave nothing to be said as word 1"):
        generate(model(words), [[5]], rules=rules, end=words.end, longest=3)


@pytest.mark.parametrize("make", [lambda: json_schema(TOKENIZER, {"type": "nothing"}), lambda: regex(TOKENIZER, "(")])
def test_a_form_that_cannot_be_is_refused(make: Any) -> None:
    pytest.importorskip("llguidance")
    with pytest.raises(ConfigError, match="this form cannot be followed"):
        make()


def test_a_tokenizer_whose_bytes_are_not_known_is_refused() -> None:
    pytest.importorskip("llguidance")
    with pytest.raises(ConfigError, match="which bytes the tokens of this tokenizer stand for is not known"):
        regex(TOKENIZERS["characters"], "a")


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(ConfigError, match=r"pip install softlook\[constrained\]"):
        json_schema(TOKENIZER, {"type": "null"})
