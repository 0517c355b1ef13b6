"""Generation of single streams and of batches."""

import gc
import weakref
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from softlook.base.errors import ConfigError, ShapeError, WeightsError
from softlook.blocks import KVCache
from softlook.blocks.segments import SegmentCache
from softlook.decode import (
    CausalLMSession,
    DecodingSession,
    GenerationOutput,
    Greedy,
    Multinomial,
    StopStrings,
    TransformerXLSession,
    bad_words,
    create_session,
    forced_eos,
    generate,
    prefix_allowed_tokens,
    repetition_penalty,
    stream,
)
from softlook.models import GPT, GPTConfig
from tests.decode.sessions import EOS, RandomLogitsSession, greedy_ids, start_ids
from tests.decode.tokenizers import TOKENIZERS
from tests.models.tiny import CONTEXT, TINY, VOCAB, Tiny

DECODERS = [tiny for tiny in TINY.values() if tiny.mode in ("decoder-only", "encoder-decoder")]
DECODER_ONLY = [tiny for tiny in DECODERS if tiny.mode == "decoder-only"]
PROMPTS = [[3, 1, 4], [1], [5, 9, 2, 6, 5], [3, 5, 8, 9]]
SOURCES = [[2, 7, 1, 8], [2], [8, 1, 8, 2, 8, 4], [5, 9]]
EOS_IDS, TOKENS = (0, 7), [id for id in range(VOCAB) if id not in (0, 7)]
LENGTHS = [3, 2, 99, 1]
"""The number of tokens after which each sequence ends."""
SAMPLERS = {"greedy": Greedy(), "sample": Multinomial(temperature=1.5, top_p=0.95, seed=3)}


def prompts_and_sources(tiny: Tiny) -> tuple[list[list[int]], dict[str, Any]]:
    """Prompts and sources for a model; a recurrent decoder needs prompts of equal length."""
    if tiny.mode == "decoder-only":
        return PROMPTS, {}
    return [[1]] * 4 if "RNN" in tiny.name else PROMPTS, {"sources": SOURCES}


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("tiny", DECODERS, ids=str)
def test_batched_generation_equals_streams(tiny: Tiny, sampler: str) -> None:
    model, (prompts, sources) = tiny.build(), prompts_and_sources(tiny)
    processors = [
        repetition_penalty(1.3),
        prefix_allowed_tokens(lambda view: EOS_IDS if len(view.generated) == LENGTHS[view.index] else TOKENS),
    ]
    common: dict[str, Any] = {
        "sampler": SAMPLERS[sampler],
        "logits_processors": processors,
        "eos_ids": EOS_IDS,
        "max_new_tokens": 5,
        "num_logprobs": 3,
    }
    batched = generate(model, prompts, **sources, **common)
    assert [output.finish_reason for output in batched] == ["eos", "eos", "length", "eos"]
    for number, (prompt, output) in enumerate(zip(prompts, batched, strict=True)):
        source = sources["sources"][number] if sources else None
        streamed = list(stream(model, prompt, source=source, index=number, **common))
        assert_same(output, streamed)


def assert_same(output: GenerationOutput, streamed: list[Any]) -> None:
    assert output.ids == [token.id for token in streamed]
    for one, other in zip(output.tokens, streamed, strict=True):
        assert one.logprob == pytest.approx(other.logprob, abs=1e-5)
        assert one.rank == other.rank
        assert [id for id, _ in one.top_logprobs] == [id for id, _ in other.top_logprobs]


@pytest.mark.parametrize("tiny", DECODERS, ids=str)
def test_logprobs_equal_a_full_forward_pass(tiny: Tiny) -> None:
    model, (prompts, sources) = tiny.build(), prompts_and_sources(tiny)
    output = generate(model, prompts, **sources, sampler=SAMPLERS["sample"], max_new_tokens=5, num_logprobs=2)[2]
    ids = [*prompts[2], *output.ids]
    kwargs = (
        {"target": torch.tensor([ids]), "source": torch.tensor([SOURCES[2]])}
        if sources
        else {"ids": torch.tensor([ids])}
    )
    logits = model(**kwargs)[0, len(prompts[2]) - 1 : -1].log_softmax(-1)
    for row, token in zip(logits, output.tokens, strict=True):
        assert token.logprob == pytest.approx(row[token.id].item(), abs=1e-4)
        assert token.rank == 1 + int((row > row[token.id] + 1e-5).sum())
        assert token.top_logprobs == tuple(
            (int(id), pytest.approx(row[id].item(), abs=1e-4)) for id in row.topk(2).indices
        )


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 4))
def test_greedy_decoding_selects_the_most_likely_tokens(seed: int, sequences: int, max_length: int) -> None:
    outputs = generate(
        RandomLogitsSession(4, max_length, sequences, seed),
        start_ids(sequences).tolist(),
        eos_ids=EOS,
        max_new_tokens=max_length,
    )
    session = RandomLogitsSession(4, max_length, sequences, seed)
    for number, output in enumerate(outputs):
        greedy: tuple[int, ...] = ()
        while len(greedy) < max_length and (token := int(session.rows[number][greedy].argmax())) != EOS:
            greedy = (*greedy, token)
        ended = (EOS,) if output.finish_reason == "eos" else ()
        assert tuple(output.ids) == greedy
        assert output.finish_reason == ("length" if len(greedy) == max_length else "eos")
        assert output.logprob == pytest.approx(session.logprob(number, greedy + ended), abs=1e-4)
    assert greedy_ids(
        RandomLogitsSession(4, max_length, sequences, seed),
        start_ids(sequences),
        eos_ids=EOS,
        max_new_tokens=max_length,
    ) == [a.ids for a in outputs]


@settings(max_examples=10)
@given(st.integers(0, 1000), st.permutations(range(4)))
def test_samples_depend_on_the_index_not_on_the_batch(seed: int, order: list[int]) -> None:
    model = TINY["GPT"].build()
    batched = generate(model, PROMPTS, sampler=Multinomial(seed=seed), eos_ids=0, max_new_tokens=6)
    number = order[0]
    assert batched[number].ids == [
        token.id
        for token in stream(
            model, PROMPTS[number], sampler=Multinomial(seed=seed), eos_ids=0, max_new_tokens=6, index=number
        )
    ]


def test_stream_returns_the_finish_reason() -> None:
    def reason(**more: Any) -> str:
        tokens = stream(TINY["GPT"].build(), [3], **more)
        while True:
            try:
                next(tokens)
            except StopIteration as ended:
                return ended.value

    assert reason(max_new_tokens=3) == "length"
    assert reason(max_new_tokens=3, logits_processors=[forced_eos(2, eos_ids=5)], eos_ids=5) == "eos"


def test_eos_token_is_not_among_the_tokens() -> None:
    output = generate(
        TINY["GPT"].build(), [[3]], logits_processors=[forced_eos(3, eos_ids=5)], eos_ids=[5, 6], max_new_tokens=9
    )[0]
    assert output.finish_reason == "eos" and len(output.ids) <= 2
    assert output.eos_token is not None and output.eos_token.id in (5, 6) and output.eos_token.logprob < 0


def test_stop_strings_end_a_sequence_and_are_removed() -> None:
    tokenizer = TOKENIZERS["bytes"]
    words = [tokenizer.encode([text])[0] for text in ("yes. no", "€!\n.x")]
    processor = prefix_allowed_tokens(lambda view: [words[view.index][len(view.generated)]])
    model = GPT(GPTConfig(vocab_size=tokenizer.vocab_size, context=16, dim=8, depth=1, heads=1)).eval()
    stop = StopStrings(tokenizer, (". ", "\n."))
    outputs = generate(model, [[8], [9, 9]], logits_processors=[processor], max_new_tokens=7, stop_strings=stop)
    assert [(output.text, output.finish_reason, len(output.ids)) for output in outputs] == [
        ("yes", "stop", 5),
        ("€!", "stop", 6),
    ]
    assert [
        token.id for token in stream(model, [8], logits_processors=[processor], max_new_tokens=7, stop_strings=stop)
    ] == words[0][:5]


def test_partial_stop_string_is_kept_at_the_length_limit() -> None:
    tokenizer = TOKENIZERS["bytes"]
    words = tokenizer.encode(["yes."])[0]
    model = GPT(GPTConfig(vocab_size=tokenizer.vocab_size, context=16, dim=8, depth=1, heads=1)).eval()
    processor = prefix_allowed_tokens(lambda view: [words[len(view.generated)]])
    output = generate(
        model, [[8]], logits_processors=[processor], max_new_tokens=4, stop_strings=StopStrings(tokenizer, (". ",))
    )[0]
    assert (output.text, output.finish_reason) == ("yes.", "length")


def test_closing_a_stream_frees_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = list[weakref.ref[DecodingSession]]()

    def recording(model: Any) -> DecodingSession:
        session = create_session(model)
        sessions.append(weakref.ref(session))
        return session

    monkeypatch.setitem(generate.__globals__, "create_session", recording)
    tokens = stream(TINY["GPT"].build(), [3, 1], max_new_tokens=9)
    next(tokens)
    assert sessions[0]() is not None
    tokens.close()
    gc.collect()
    assert sessions[0]() is None


def test_generation_records_no_gradients() -> None:
    cache = KVCache()
    for _ in stream(CausalLMSession(TINY["GPT"].build(), cache), [3, 1], max_new_tokens=2):
        assert torch.is_grad_enabled()
    assert cache.length == 3 and not any(layer.kv[0].requires_grad for layer in cache.layers)  # pyright: ignore


@pytest.mark.parametrize("tiny", DECODER_ONLY, ids=str)
def test_custom_caches_give_the_same_tokens(tiny: Tiny) -> None:
    model = tiny.build()
    assert generate(model, PROMPTS, max_new_tokens=4) == generate(create_session(model), PROMPTS, max_new_tokens=4)


def test_class_labels_condition_generation() -> None:
    model = TINY["GPT with labels"].build()
    labels = torch.tensor([0, 1, 2, 0])
    batched = generate(CausalLMSession(model, class_label=labels), PROMPTS, eos_ids=0, max_new_tokens=6)
    for number, (prompt, output) in enumerate(zip(PROMPTS, batched, strict=True)):
        streamed = list(
            stream(CausalLMSession(model, class_label=labels[number : number + 1]), prompt, eos_ids=0, max_new_tokens=6)
        )
        assert_same(output, streamed)
    assert [output.ids for output in batched] != [
        output.ids for output in generate(model, PROMPTS, eos_ids=0, max_new_tokens=6)
    ]


def test_short_transformer_xl_memory() -> None:
    model, ids, cache = TINY["TransformerXL"].build(), [3, 1, 4], SegmentCache(2)
    outputs = generate(TransformerXLSession(model, 2), [ids, [1]], max_new_tokens=7, sampler=SAMPLERS["sample"])
    with torch.no_grad():
        logits = [model(torch.tensor([ids]), cache=cache)[0, -1]]
        logits += [model(torch.tensor([[id]]), cache=cache)[0, -1] for id in outputs[0].ids[:-1]]
    for row, token in zip(logits, outputs[0].tokens, strict=True):
        assert token.logprob == pytest.approx(row.log_softmax(-1)[token.id].item(), abs=1e-4)


def test_default_length_fills_the_context() -> None:
    outputs = generate(TINY["GPT"].build(), [[3, 1, 4], [1]])
    assert [len(output.ids) for output in outputs] == [CONTEXT - 3, CONTEXT - 1]


def nan_model() -> Any:
    model = TINY["GPT"].build()
    model.final_norm.weight.data.fill_(torch.nan)
    return model


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda gpt: stream(gpt, [3] * 10, max_new_tokens=7),
            ConfigError,
            "7 new tokens after a prompt of 10 .* set max_new_tokens=6, or pass a context_shift",
        ),
        (
            lambda gpt: stream(gpt, [3] * CONTEXT),
            ConfigError,
            "1 new tokens after a prompt of 16 .* Shorten the prompt or pass a context_shift$",
        ),
        (lambda gpt: stream(gpt, []), ConfigError, "the prompt must have at least one id"),
        (
            lambda gpt: stream(gpt, [3], max_new_tokens=0),
            ConfigError,
            "max_new_tokens must be >= 1, got 0",
        ),
        (lambda gpt: stream(gpt, [3], source=[4]), ConfigError, "takes no source: put it in the prompt"),
        (
            lambda gpt: stream(TINY["T5"].build(), [3], max_new_tokens=3),
            ConfigError,
            "T5 is an encoder-decoder and needs a source",
        ),
        (lambda gpt: stream(TINY["Bert"].build(), [3]), ConfigError, "Bert does not generate text"),
        (
            lambda gpt: stream(TINY["ConvolutionalLM"].build(), [3]),
            ConfigError,
            "there is no maximum length: set max_new_tokens",
        ),
        (lambda gpt: stream(gpt.train(), [3]), ConfigError, r"Call model.eval\(\) first"),
        (
            lambda gpt: stream(CausalLMSession(gpt), [3], source=[4]),
            ConfigError,
            "a decoding session has its own source",
        ),
        (
            lambda gpt: generate(gpt, [[3]], sources=[]),
            ConfigError,
            "expected one prompt per source, got 0 sources and 1 prompts",
        ),
        (
            lambda gpt: generate(gpt, [[3]], logits_processors=[bad_words([[id] for id in range(VOCAB)])]),
            ConfigError,
            r"mask every token at new token 1 of sequence 0, after \[3\]",
        ),
        (lambda gpt: generate(nan_model(), [[3]]), WeightsError, "the model's logits are NaN or infinite in row 0"),
        (
            lambda gpt: generate(TINY["RNNSearch"].build(), [[3], [3, 1]], sources=[[1], [2]], max_new_tokens=2),
            ShapeError,
            "needs prompts of equal length",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_invalid_arguments_raise_errors(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(TINY["GPT"].build())


def test_no_prompts() -> None:
    assert generate(TINY["GPT"].build(), []) == []


@pytest.mark.cuda
@pytest.mark.parametrize("tiny", DECODERS, ids=str)
def test_gpu_generation_equals_cpu(tiny: Tiny) -> None:
    model, (prompts, sources) = tiny.build(), prompts_and_sources(tiny)
    processors = [
        repetition_penalty(1.3),
        prefix_allowed_tokens(lambda view: EOS_IDS if len(view.generated) == LENGTHS[view.index] else TOKENS),
    ]
    common: dict[str, Any] = {
        "sampler": SAMPLERS["sample"],
        "logits_processors": processors,
        "eos_ids": EOS_IDS,
        "max_new_tokens": 5,
        "num_logprobs": 2,
    }
    expected = generate(model, prompts, **sources, **common)
    for output, other in zip(generate(model.cuda(), prompts, **sources, **common), expected, strict=True):
        assert output.ids == other.ids
        assert output.logprob == pytest.approx(other.logprob, abs=1e-3)
