"""Conversations: rendered by the chat template, remembered, and kept within the context."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from softlook import decode
from softlook.base.errors import ConfigError, DataError
from softlook.decode.chat_template import ChatTemplate
from softlook.models import GPT, GPTConfig
from softlook.recipes.inference import Chat, GenerationParams, Pipeline, load_chat, load_pipeline
from softlook.recipes.inference.chat import default_sampling
from softlook.tokens import TextTokenizer, train_tokenizer
from softlook.weights import save
from softlook.weights.assets import SpecialTokens

pytest.importorskip("jinja2")
TEMPLATE = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant] "
GREEDY = GenerationParams(temperature=0, max_new_tokens=8)


@pytest.fixture(scope="module")
def pipeline() -> Pipeline:
    torch.manual_seed(0)
    tokenizer = TextTokenizer(train_tokenizer([], model_type="bytes"))
    model = GPT(GPTConfig(vocab_size=tokenizer.vocab_size, context=128, dim=32, depth=1, heads=2)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    bos, eos = (tokenizer.bos_id,), (tokenizer.eos_id,)
    return Pipeline("tiny", model, tokenizer, SpecialTokens(bos, (), bos, eos), [], torch.device("cpu"))


@pytest.fixture(scope="module")
def template() -> ChatTemplate:
    return ChatTemplate(TEMPLATE)


def continuation(pipeline: Pipeline, prompt: str) -> str:
    """What the model generates after a prompt without BOS, greedily."""
    rows = pipeline.tokenizer.encode([prompt])
    (output,) = decode.generate(pipeline.model, rows, max_new_tokens=8, eos_ids=pipeline.special_tokens.eos)
    return pipeline.tokenizer.decode(output.ids)


def test_an_answer_continues_the_rendered_conversation(pipeline: Pipeline, template: ChatTemplate) -> None:
    chat = Chat(pipeline, template, GREEDY, system="be brief")
    first = "".join(chat.answer("hi"))
    prompt = "[system] be brief\n[user] hi\n[assistant] "
    assert first == continuation(pipeline, prompt)
    second = "".join(chat.answer("and?"))
    assert second == continuation(pipeline, f"{prompt[:-12]}[assistant] {first}\n[user] and?\n[assistant] ")
    assert [message["content"] for message in chat.messages] == ["hi", first, "and?", second]


def test_without_a_template_the_model_continues_the_text(pipeline: Pipeline) -> None:
    chat = Chat(pipeline, None, GREEDY)
    answer = "".join(chat.answer("Once upon"))
    plain = decode.generate(
        pipeline.model, [[pipeline.tokenizer.bos_id, *pipeline.tokenizer.encode(["Once upon"])[0]]], max_new_tokens=8
    )
    assert answer == pipeline.tokenizer.decode(plain[0].ids)


def test_an_interrupted_answer_stays_in_the_conversation(pipeline: Pipeline, template: ChatTemplate) -> None:
    chat = Chat(pipeline, template, GREEDY)
    pieces: Any = chat.answer("hi")
    started = next(pieces)
    pieces.close()
    assert chat.messages == [{"role": "user", "content": "hi"}, {"role": "assistant", "content": started}]
    assert "".join(chat.answer("go on"))


def test_an_answer_that_was_never_read_leaves_no_two_user_messages(pipeline: Pipeline, template: ChatTemplate) -> None:
    chat = Chat(pipeline, template, GREEDY)
    chat.answer("unread")
    "".join(chat.answer("hi"))
    assert [message["role"] for message in chat.messages] == ["user", "assistant"]


def test_the_oldest_turns_are_dropped_when_the_context_is_full(pipeline: Pipeline, template: ChatTemplate) -> None:
    chat = Chat(pipeline, template, replace(GREEDY, max_new_tokens=20), system="be brief")
    for number in range(6):
        "".join(chat.answer(f"message {number}"))
    assert chat.num_dropped > 0 and chat.num_dropped % 2 == 0
    assert len(chat.messages) + chat.num_dropped == 12
    assert chat.messages[0]["role"] == "user" and chat.messages[-2]["content"] == "message 5"
    assert chat.system == "be brief"


def test_a_message_that_does_not_fit_is_an_error_and_is_not_remembered(
    pipeline: Pipeline, template: ChatTemplate
) -> None:
    chat = Chat(pipeline, template, GREEDY)
    "".join(chat.answer("hi"))
    with pytest.raises(DataError, match="a message of 220 tokens and an answer of up to 8 exceed the context of 128"):
        chat.answer("x" * 200)
    assert len(chat.messages) == 2 and "".join(chat.answer("short"))


def test_a_template_that_rejects_the_conversation_is_an_error(pipeline: Pipeline) -> None:
    rejecting = ChatTemplate("{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}a")
    chat = Chat(pipeline, rejecting, GREEDY, system="be brief")
    with pytest.raises(DataError, match="no system"):
        chat.answer("hi")
    assert not chat.messages
    with pytest.raises(DataError, match="empty text"):
        Chat(pipeline, ChatTemplate(""), GREEDY).answer("hi")


def test_reset_forgets_all_messages_but_the_system_message(pipeline: Pipeline, template: ChatTemplate) -> None:
    chat = Chat(pipeline, template, GREEDY, system="be brief")
    first = "".join(chat.answer("hi"))
    chat.reset()
    assert not chat.messages and "".join(chat.answer("hi")) == first


def test_with_a_seed_a_conversation_is_reproducible_and_its_answers_differ(
    pipeline: Pipeline, template: ChatTemplate
) -> None:
    params = GenerationParams(temperature=1, seed=3, max_new_tokens=8)
    chats = [Chat(pipeline, template, params) for _ in range(2)]
    answers = []
    for chat in chats:
        first = "".join(chat.answer("hi"))
        chat.reset()
        answers.append((first, "".join(chat.answer("hi"))))
    assert answers[0] == answers[1] and answers[0][0] != answers[0][1]


def test_special_tokens_of_the_template_are_tokens(pipeline: Pipeline) -> None:
    chat = Chat(pipeline, ChatTemplate("{{ bos_token }}{{ messages[0].content }}", bos="<s>"), GREEDY)
    assert chat._encode([{"role": "user", "content": "a"}])[0] == pipeline.tokenizer.bos_id


def test_answers_end_with_the_end_of_sequence_token_of_the_template(pipeline: Pipeline) -> None:
    chat = Chat(pipeline, ChatTemplate(TEMPLATE, eos="<sep>"), GREEDY)
    assert chat.pipeline.special_tokens.eos == (pipeline.tokenizer.eos_id, pipeline.tokenizer.sep_id)


def test_sampling_defaults_are_those_of_the_generation_config(tmp_path: Path) -> None:
    path = tmp_path / "generation_config.json"
    assert default_sampling(tmp_path) == {}
    path.write_text(json.dumps({"do_sample": True, "temperature": 0.6, "top_p": 0.9, "top_k": 0, "max_length": 20}))
    assert default_sampling(tmp_path) == {"temperature": 0.6, "top_p": 0.9}
    path.write_text(json.dumps({"do_sample": False, "temperature": 0.6}))
    assert default_sampling(tmp_path) == {"temperature": 0.0}


def test_a_chat_is_loaded_from_a_model_folder(pipeline: Pipeline, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    save(pipeline.model, folder)
    (folder / "tokenizer.json").write_text(pipeline.tokenizer.tokenizer.to_str())
    loaded = load_pipeline(folder, device="cpu")
    assert load_chat(loaded, folder).template is None
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    assert load_chat(loaded, folder, GREEDY).template is not None
    with pytest.raises(ConfigError, match="dates cannot generate"):
        load_chat(load_pipeline("dates", device="cpu"), "dates")
