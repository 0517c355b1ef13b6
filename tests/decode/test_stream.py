"""From a prompt to an answer: word by word for one, or for many at once."""

import gc
import weakref
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from softlook.base.errors import ConfigError, ShapeError, WeightsError
from softlook.blocks import Memory
from softlook.blocks.segments import SegmentMemory
from softlook.decode import (
    Answer,
    Continuing,
    Recurring,
    Speaker,
    Stop,
    allow,
    end_at,
    forbid,
    generate,
    greedy,
    likeliest,
    repetition_penalty,
    sample,
    speaker_for,
    stream,
)
from softlook.models import GPT, GPTConfig
from tests.decode.speakers import END, Drawn, start
from tests.decode.tokenizers import TOKENIZERS
from tests.models.tiny import CONTEXT, TINY, VOCAB, Tiny

DECODERS = [tiny for tiny in TINY.values() if tiny.mode in ("decoder-only", "encoder-decoder")]
READERS = [tiny for tiny in DECODERS if tiny.mode == "decoder-only"]
PROMPTS = [[3, 1, 4], [1], [5, 9, 2, 6, 5], [3, 5, 8, 9]]
SOURCES = [[2, 7, 1, 8], [2], [8, 1, 8, 2, 8, 4], [5, 9]]
LAST, WORDS = (0, 7), [id for id in range(VOCAB) if id not in (0, 7)]
LEAVE = [3, 2, 99, 1]
"""After how many words each of them leaves."""
PICKS = {"likeliest": likeliest(), "sample": sample(temperature=1.5, top_p=0.95, seed=3)}


def asked(tiny: Tiny) -> tuple[list[list[int]], dict[str, Any]]:
    """Prompts and sources that fit a model; a recurrent decoder begins all its answers with as many words."""
    if tiny.mode == "decoder-only":
        return PROMPTS, {}
    return [[1]] * 4 if "RNN" in tiny.name else PROMPTS, {"sources": SOURCES}


@pytest.mark.parametrize("pick", PICKS)
@pytest.mark.parametrize("tiny", DECODERS, ids=str)
def test_many_at_once_say_what_each_says_alone(tiny: Tiny, pick: str) -> None:
    model, (prompts, sources) = tiny.build(), asked(tiny)
    rules = [repetition_penalty(1.3), allow(lambda said: LAST if len(said.new) == LEAVE[said.number] else WORDS)]
    common: dict[str, Any] = {"pick": PICKS[pick], "rules": rules, "end": LAST, "longest": 5, "top": 3}
    together = generate(model, prompts, **sources, **common)
    assert [answer.reason for answer in together] == ["end", "end", "length", "end"]
    for number, (prompt, answer) in enumerate(zip(prompts, together, strict=True)):
        source = sources["sources"][number] if sources else None
        alone = list(stream(model, prompt, source=source, number=number, **common))
        same(answer, alone)


def same(answer: Answer, alone: list[Any]) -> None:
    assert answer.ids == [token.id for token in alone]
    for one, other in zip(answer.tokens, alone, strict=True):
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-5)
        assert one.rank == other.rank
        assert [id for id, _ in one.top] == [id for id, _ in other.top]


@pytest.mark.parametrize("tiny", DECODERS, ids=str)
def test_a_word_is_as_likely_as_the_model_says_that_reads_everything_anew(tiny: Tiny) -> None:
    model, (prompts, sources) = tiny.build(), asked(tiny)
    answer = generate(model, prompts, **sources, pick=PICKS["sample"], longest=5, top=2)[2]
    ids = [*prompts[2], *answer.ids]
    told = (
        {"target": torch.tensor([ids]), "source": torch.tensor([SOURCES[2]])}
        if sources
        else {"ids": torch.tensor([ids])}
    )
    scores = model(**told)[0, len(prompts[2]) - 1 : -1].log_softmax(-1)
    for row, token in zip(scores, answer.tokens, strict=True):
        assert token.log_probability == pytest.approx(row[token.id].item(), abs=1e-4)
        assert token.rank == 1 + int((row > row[token.id] + 1e-5).sum())
        assert token.top == tuple((int(id), pytest.approx(row[id].item(), abs=1e-4)) for id in row.topk(2).indices)


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 4))
def test_the_likeliest_words_are_what_greedy_says(seed: int, sequences: int, longest: int) -> None:
    answers = generate(Drawn(4, longest, sequences, seed), start(sequences).tolist(), end=END, longest=longest)
    speaker = Drawn(4, longest, sequences, seed)
    for number, answer in enumerate(answers):
        said: tuple[int, ...] = ()
        while len(said) < longest and (word := int(speaker.rows[number][said].argmax())) != END:
            said = (*said, word)
        ended = (END,) if answer.reason == "end" else ()
        assert tuple(answer.ids) == said
        assert answer.reason == ("length" if len(said) == longest else "end")
        assert answer.log_probability == pytest.approx(speaker.log_probability(number, said + ended), abs=1e-4)
    assert greedy(Drawn(4, longest, sequences, seed), start(sequences), end=END, longest=longest) == [
        a.ids for a in answers
    ]


@settings(max_examples=10)
@given(st.integers(0, 1000), st.permutations(range(4)))
def test_a_sampled_answer_depends_on_its_number_not_on_who_shares_its_batch(seed: int, order: list[int]) -> None:
    model = TINY["GPT"].build()
    together = generate(model, PROMPTS, pick=sample(seed=seed), end=0, longest=6)
    number = order[0]
    assert together[number].ids == [
        token.id for token in stream(model, PROMPTS[number], pick=sample(seed=seed), end=0, longest=6, number=number)
    ]


def test_a_stream_says_why_it_ended() -> None:
    def reason(**more: Any) -> str:
        said = stream(TINY["GPT"].build(), [3], **more)
        while True:
            try:
                next(said)
            except StopIteration as ended:
                return ended.value

    assert reason(longest=3) == "length"
    assert reason(longest=3, rules=[end_at(2, end=5)], end=5) == "end"


def test_an_end_is_not_handed_on_but_told_with_the_answer() -> None:
    answer = generate(TINY["GPT"].build(), [[3]], rules=[end_at(3, end=5)], end=[5, 6], longest=9)[0]
    assert answer.reason == "end" and len(answer.ids) <= 2
    assert answer.end is not None and answer.end.id in (5, 6) and answer.end.log_probability < 0


def test_whoever_says_a_stop_string_leaves_and_its_text_ends_before_it() -> None:
    tokenizer = TOKENIZERS["bytes"]
    words = [tokenizer.encode([text])[0] for text in ("yes. no", "€!\n.x")]
    rule = allow(lambda said: [words[said.number][len(said.new)]])
    model = GPT(GPTConfig(vocab=tokenizer.vocab, context=16, dim=8, depth=1, heads=1)).eval()
    stop = Stop(tokenizer, (". ", "\n."))
    answers = generate(model, [[8], [9, 9]], rules=[rule], longest=7, stop=stop)
    assert [(answer.text, answer.reason, len(answer.ids)) for answer in answers] == [
        ("yes", "stop", 5),
        ("€!", "stop", 6),
    ]
    assert [token.id for token in stream(model, [8], rules=[rule], longest=7, stop=stop)] == words[0][:5]


def test_text_that_only_began_a_stop_string_is_there_at_the_limit() -> None:
    tokenizer = TOKENIZERS["bytes"]
    words = tokenizer.encode(["yes."])[0]
    model = GPT(GPTConfig(vocab=tokenizer.vocab, context=16, dim=8, depth=1, heads=1)).eval()
    rule = allow(lambda said: [words[len(said.new)]])
    answer = generate(model, [[8]], rules=[rule], longest=4, stop=Stop(tokenizer, (". ",)))[0]
    assert (answer.text, answer.reason) == ("yes.", "length")


def test_closing_a_stream_frees_what_was_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[weakref.ref[Speaker]]()

    def watched(model: Any) -> Speaker:
        speaker = speaker_for(model)
        made.append(weakref.ref(speaker))
        return speaker

    monkeypatch.setitem(generate.__globals__, "speaker_for", watched)
    said = stream(TINY["GPT"].build(), [3, 1], longest=9)
    next(said)
    assert made[0]() is not None
    said.close()
    gc.collect()
    assert made[0]() is None


def test_no_gradient_is_kept_and_the_caller_keeps_the_right_to_one() -> None:
    memory = Memory()
    for _ in stream(Continuing(TINY["GPT"].build(), memory), [3, 1], longest=2):
        assert torch.is_grad_enabled()
    assert memory.length == 3 and not any(layer.own[0].requires_grad for layer in memory.kept)  # pyright: ignore


@pytest.mark.parametrize("tiny", READERS, ids=str)
def test_a_label_a_memory_and_a_seed_change_nothing_they_should_not(tiny: Tiny) -> None:
    model = tiny.build()
    assert generate(model, PROMPTS, longest=4) == generate(speaker_for(model), PROMPTS, longest=4)


def test_a_label_colours_what_is_said() -> None:
    model = TINY["GPT with labels"].build()
    labels = torch.tensor([0, 1, 2, 0])
    together = generate(Continuing(model, label=labels), PROMPTS, end=0, longest=6)
    for number, (prompt, answer) in enumerate(zip(PROMPTS, together, strict=True)):
        alone = list(stream(Continuing(model, label=labels[number : number + 1]), prompt, end=0, longest=6))
        same(answer, alone)
    assert [answer.ids for answer in together] != [answer.ids for answer in generate(model, PROMPTS, end=0, longest=6)]


def test_a_short_memory_of_segments_is_what_the_model_has_then() -> None:
    model, ids, memory = TINY["TransformerXL"].build(), [3, 1, 4], SegmentMemory(2)
    answers = generate(Recurring(model, 2), [ids, [1]], longest=7, pick=PICKS["sample"])
    with torch.no_grad():
        scores = [model(torch.tensor([ids]), memory=memory)[0, -1]]
        scores += [model(torch.tensor([[id]]), memory=memory)[0, -1] for id in answers[0].ids[:-1]]
    for row, token in zip(scores, answers[0].tokens, strict=True):
        assert token.log_probability == pytest.approx(row.log_softmax(-1)[token.id].item(), abs=1e-4)


def test_where_not_told_a_model_says_as_much_as_there_is_room_for() -> None:
    answers = generate(TINY["GPT"].build(), [[3, 1, 4], [1]])
    assert [len(answer.ids) for answer in answers] == [CONTEXT - 3, CONTEXT - 1]


def nan() -> Any:
    model = TINY["GPT"].build()
    model.norm.weight.data.fill_(torch.nan)
    return model


@pytest.mark.parametrize(
    ("ask", "kind", "message"),
    [
        (lambda gpt: stream(gpt, [3] * 10, longest=7), ConfigError, "7 new words behind 10 .* say longest=6"),
        (lambda gpt: stream(gpt, [3] * CONTEXT), ConfigError, "1 new words behind 16 .* Shorten the prompt$"),
        (lambda gpt: stream(gpt, []), ConfigError, "a prompt has at least one id"),
        (lambda gpt: stream(gpt, [3], longest=0), ConfigError, "longest is the most new words, 1 at least; 0 came"),
        (lambda gpt: stream(gpt, [3], source=[4]), ConfigError, "a GPT reads no source: put it in the prompt"),
        (lambda gpt: stream(TINY["T5"].build(), [3], longest=3), ConfigError, "a T5 wants a source"),
        (lambda gpt: stream(TINY["Bert"].build(), [3]), ConfigError, "a Bert does not say one word after the other"),
        (
            lambda gpt: stream(TINY["ConvolutionalLM"].build(), [3]),
            ConfigError,
            "Say how many words it may say: longest=",
        ),
        (lambda gpt: stream(gpt.train(), [3]), ConfigError, r"Call model.eval\(\) first"),
        (lambda gpt: stream(Continuing(gpt), [3], source=[4]), ConfigError, "a speaker has read its source already"),
        (
            lambda gpt: generate(gpt, [[3]], sources=[]),
            ConfigError,
            "each source wants a prompt of its own; 0 and 1 came",
        ),
        (
            lambda gpt: generate(gpt, [[3]], rules=[forbid([[id] for id in range(VOCAB)])]),
            ConfigError,
            r"the rules leave nothing to be said as word 1 of sequence 0, after \[3\]",
        ),
        (lambda gpt: generate(nan(), [[3]]), WeightsError, "the model's logits are NaN or infinite in row 0"),
        (
            lambda gpt: generate(TINY["RNNSearch"].build(), [[3], [3, 1]], sources=[[1], [2]], longest=2),
            ShapeError,
            "begin all its answers with as many words",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_is_said_before_anything_else(ask: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        ask(TINY["GPT"].build())


def test_no_prompts_have_no_answers() -> None:
    assert generate(TINY["GPT"].build(), []) == []


@pytest.mark.cuda
@pytest.mark.parametrize("tiny", DECODERS, ids=str)
def test_a_gpu_says_what_a_cpu_says(tiny: Tiny) -> None:
    model, (prompts, sources) = tiny.build(), asked(tiny)
    rules = [repetition_penalty(1.3), allow(lambda said: LAST if len(said.new) == LEAVE[said.number] else WORDS)]
    common: dict[str, Any] = {"pick": PICKS["sample"], "rules": rules, "end": LAST, "longest": 5, "top": 2}
    wanted = generate(model, prompts, **sources, **common)
    for answer, other in zip(generate(model.cuda(), prompts, **sources, **common), wanted, strict=True):
        assert answer.ids == other.ids
        assert answer.log_probability == pytest.approx(other.log_probability, abs=1e-3)
