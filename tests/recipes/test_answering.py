"""What is asked in Python: each answer is what it would be alone, and what training meant it to be."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from softlook.base.errors import ConfigError
from softlook.models import T5, Bert, BertConfig, RNNSearch, RNNSearchConfig, T5Config
from softlook.recipes.aligning import Alignment, alignments
from softlook.recipes.answering import Manner, Opened, classify, embed, generate, opened, stream, translate
from softlook.recipes.classification import Framing, scores_of
from softlook.recipes.opened import Question, Signs
from softlook.recipes.reading import framed
from softlook.tokens import TextTokenizer
from tests.recipes.asked import made_runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return made_runs(tmp_path_factory.mktemp("asked"), "lm", "classify")


@pytest.fixture(scope="module")
def talker(runs: dict[str, Path]) -> Opened:
    return opened(runs["lm"], device="cpu")


def test_an_answer_does_not_depend_on_its_neighbours(talker: Opened) -> None:
    prompts = ["the cat", "", "my king sees the moon 3 .", "the"]
    manner = Manner(seed=5, longest=6)
    together = generate(talker, prompts, manner, count=2)
    assert [one.prompt for one in together] == [prompt for prompt in prompts for _ in range(2)]
    for place, prompt in enumerate(prompts):
        alone = generate(talker, [prompt], manner, count=2, first=place)
        assert [one.text for one in alone] == [one.text for one in together[2 * place : 2 * place + 2]]


def test_what_is_streamed_is_what_is_generated(talker: Opened) -> None:
    manner = Manner(seed=5, longest=12, stop=("e",), repetition=1.2)
    for number in range(3):
        (whole,) = generate(talker, ["the cat"], manner, first=number)
        assert "".join(stream(talker, "the cat", manner, number=number)) == whole.text
        assert "e" not in whole.text


def test_there_are_as_many_new_tokens_as_there_is_room_for(talker: Opened) -> None:
    context = talker.model.config.context
    prompt = "the cat sees fish 1 .\n" * 5
    long = generate(talker, [prompt], Manner(temperature=0))[0]
    length = len(talker.tokenizer.encode([prompt])[0]) + 1
    assert long.reason == "end" or len(long.tokens) == context - length
    with pytest.raises(ConfigError, match="0, for the likeliest word, or above; -1 came"):
        generate(talker, ["a"], Manner(temperature=-1))


def test_classes_are_those_of_training(runs: dict[str, Path]) -> None:
    run = opened(runs["classify"], device="cpu")
    asked = [
        Question("film 1 was lovely"),
        Question("film"),
        Question("a film", "and a second text"),
        Question("x" * 900),
    ]
    longest = run.settings.batch.longest  # pyright: ignore[reportOptionalMemberAccess,reportAttributeAccessIssue]
    framing = Framing(run.tokenizer, min(longest, run.model.config.context))
    items = framing.items([one.labelled() for one in asked], run.labels)
    wanted = scores_of(run.model, framing, items, run.device).softmax(-1)
    found = classify(run, asked)
    given = torch.tensor([[one.classes[name] for name in run.labels] for one in found])
    torch.testing.assert_close(given, wanted)
    torch.testing.assert_close(embed(run, asked)[1], embed(run, ["film"])[0])
    assert classify(run, []) == []


def strangers_tokenizer() -> TextTokenizer:
    words = Tokenizer(WordLevel({word: id for id, word in enumerate(("[UNK]", "[CLS]", "[SEP]", "a", "b"))}, "[UNK]"))
    words.pre_tokenizer = Whitespace()  # pyright: ignore[reportAttributeAccessIssue]
    words.post_processor = TemplateProcessing(  # pyright: ignore[reportAttributeAccessIssue]
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    return TextTokenizer(words)


@pytest.mark.parametrize("segments", [0, 1, 2])
def test_for_other_peoples_encoders_their_tokenizer_says_what_stands_around_texts(segments: int) -> None:
    model = Bert(BertConfig(vocab=5, context=6, dim=8, depth=1, heads=2, segments=segments, head="classes")).eval()
    run = Opened("m", model, strangers_tokenizer(), Signs(), ["no", "yes"], None, torch.device("cpu"))
    one, two, cut = framed(run, [Question("a"), Question("a", "b"), Question("a b a b a b a b")])
    assert list(one.ids) == [1, 3, 2] and list(two.ids) == [1, 3, 2, 2, 4, 2] and len(cut.ids) == 6
    assert max(two.segments) == 1
    assert len(classify(run, ["a", ("a", "b")])) == 2


@pytest.mark.parametrize("kind", ["T5", "RNNSearch"])
def test_every_translator_tells_where_it_looked(kind: str) -> None:
    reader = opened("dates", device="cpu")
    vocab = reader.tokenizer.vocab
    torch.manual_seed(0)
    made = {
        "T5": lambda: T5(T5Config(vocab=vocab, dim=16, depth=2, heads=2, head_width=8, hidden=16)),
        "RNNSearch": lambda: RNNSearch(
            RNNSearchConfig(source_vocab=vocab, target_vocab=vocab, dim=8, hidden=8, readout=8)
        ),
    }
    run = replace(reader, model=made[kind]().eval())
    rows = [[*ids, reader.tokenizer.end] for ids in reader.tokenizer.encode(["3 mars", "le 25 mai 1999"])]
    said = reader.tokenizer.encode(["2022-03", "1"])
    for one, alone in zip(
        alignments(run, rows, said),
        [alignments(run, [row], [ids])[0] for row, ids in zip(rows, said, strict=True)],
        strict=True,
    ):
        torch.testing.assert_close(one.weights, alone.weights)
        assert one.weights.shape == (len(one.target), len(one.source))
        assert ((one.weights.sum(1) > 0) & (one.weights.sum(1) < 1)).all()  # the end of the source has its share


def test_words_are_aligned_by_all_their_tokens() -> None:
    weights = torch.tensor([[0.5, 0.0, 0.3, 0.3], [0.0, 0.0, 0.4, 0.4], [0.9, 0.0, 0.0, 0.0]])
    look = Alignment(["the", " ", "ca", "t"], ["Kat", "ze", " die"], weights)
    assert look.tokens() == [(0, 0), (0, 2), (2, 1)]
    assert look.words() == [(0, 1), (1, 0)]
    assert Alignment([], ["a"], torch.zeros(1, 0)).words() == []


def test_translations_do_not_depend_on_their_neighbours() -> None:
    reader = opened("dates", device="cpu")
    texts = ["3 mars 2022", "", "donnerstag, den 25. dezember 1999", "1/2/03"]
    together = translate(reader, texts, beams=1, aligned=True)
    assert [one.source for one in together] == texts and together[1].best == []
    for text, one in list(zip(texts, together, strict=True))[2:]:
        (alone,) = translate(reader, [text], beams=1, aligned=True)
        assert alone.text == one.text and alone.best[0].score == pytest.approx(one.best[0].score, abs=1e-4)
        assert one.best[0].alignment is not None and alone.best[0].alignment is not None
        torch.testing.assert_close(one.best[0].alignment.weights, alone.best[0].alignment.weights)


@pytest.mark.parametrize("device", ["cuda:0", "mps"])
def test_weights_of_one_byte_are_refused_elsewhere_than_on_a_cpu(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("softlook.recipes.opened.choose_device", lambda wanted: torch.device(device))
    with pytest.raises(ConfigError, match=f"for the CPU, and this would run on {device}. Add --device cpu"):
        opened("dates", int8=True)


def test_a_model_opened_with_weights_of_one_byte_answers_nearly_the_same(runs: dict[str, Path]) -> None:
    exact, small = (opened(runs["classify"], device="cpu", int8=int8) for int8 in (False, True))
    assert any(type(part) is torch.nn.Linear for part in exact.model.modules())
    assert not any(type(part) is torch.nn.Linear for part in small.model.modules())
    texts = ["the cat sees fish", "a king"]
    for one, other in zip(classify(exact, texts), classify(small, texts), strict=True):
        assert dict(other.classes) == pytest.approx(dict(one.classes), abs=0.05)
