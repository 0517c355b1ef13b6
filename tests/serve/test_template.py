"""Chat templates are other people's code: they can do nothing but write, little and soon."""

import json
import time
from pathlib import Path

import pytest

from softlook.base.errors import DataError, WeightsError
from softlook.serve.template import LONGEST_TEXT, ChatTemplate, template_in

HELLO = [{"role": "user", "content": "hello"}]

ATTACKS = {
    "classes": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "globals": "{{ raise_exception.__globals__ }}",
    "attr": "{{ ''|attr('__class__') }}",
    "format": "{{ '{0.__class__}'.format('') }}",
    "format_map": "{{ '{a.__class__}'.format_map({'a': ''}) }}",
    "cycler": "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "change": "{% set x = messages.append({}) %}{{ messages|length }}",
    "include": "{% include '/etc/passwd' %}",
    "import": "{% import 'os' as os %}{{ os }}",
    "multiply": "{{ 'a' * 1000000000 }}",
    "power": "{{ 9 ** 9 ** 9 }}",
    "width": "{{ '%1000000000d' % 1 }}",
    "center": "{{ 'a'|center(1000000000) }}",
    "range": "{% for i in range(1000000000) %}a{% endfor %}",
    "refusal": "{{ raise_exception('only one system message') }}",
    "division": "{{ 1 / 0 }}",
    "missing": "{{ nothing.at.all }}",
    "recursion": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_template_that_reaches_out_is_refused(attack: str) -> None:
    began = time.monotonic()
    try:
        written = ChatTemplate(ATTACKS[attack]).written(HELLO)
    except (DataError, WeightsError) as fault:
        assert "template" in str(fault)
    else:  # what jinja2 makes nothing of is written as nothing
        assert "class" not in written and "root:" not in written and len(written) < 10, written
    assert time.monotonic() - began < 5
    assert HELLO == [{"role": "user", "content": "hello"}]


def test_a_template_that_never_ends_is_broken_off() -> None:
    endless = "{% set r = range(99999) %}{% for i in r %}{% for j in r %}{% endfor %}{% endfor %}"
    began = time.monotonic()
    with pytest.raises(DataError, match="takes too long"):
        ChatTemplate(endless, seconds=0.2).written(HELLO)
    assert time.monotonic() - began < 2


def test_a_template_that_writes_too_much_is_broken_off() -> None:
    wordy = "{% for i in range(99999) %}{{ messages[0].content }}{% endfor %}"
    with pytest.raises(DataError, match=f"more than {LONGEST_TEXT:,} characters"):
        ChatTemplate(wordy, seconds=60).written([{"role": "user", "content": "a" * 100}])


def test_templates_as_people_write_them_work() -> None:
    source = (
        "{{ bos_token }}{% for message in messages %}{% if loop.index0 % 2 == 1 and message.role != 'assistant' %}"
        "{{ raise_exception('roles must alternate') }}{% endif %}"
        "<|{{ message['role'] }}|>{{ message['content'] | trim }}{{ eos_token }}\n{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}{{ {'é': 1} | tojson }}"
    )
    template = ChatTemplate(source, begin="<s>", end="</s>")
    assert template.written([{"role": "user", "content": " hi "}]) == '<s><|user|>hi</s>\n<|assistant|>{"é": 1}'
    with pytest.raises(DataError, match="roles must alternate"):
        template.written([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}])


def test_a_template_comes_from_the_models_folder(tmp_path: Path) -> None:
    assert template_in(tmp_path) is None
    settings = {"chat_template": "{{ eos_token }}1", "eos_token": {"content": "</s>"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    first = template_in(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{{ eos_token }}2")
    second = template_in(tmp_path)
    assert first is not None and second is not None
    assert (first.written(HELLO), second.written(HELLO)) == ("</s>1", "</s>2")
    several = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "yes"}]
    (tmp_path / "chat_template.jinja").unlink()
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": several}))
    named = template_in(tmp_path)
    assert named is not None and named.written(HELLO) == "yes"


@pytest.mark.parametrize("source", ["{% for %}", "{{ a", "a" * 300_000])
def test_a_template_that_is_none_is_refused_when_the_server_starts(source: str) -> None:
    with pytest.raises(WeightsError, match="chat template"):
        ChatTemplate(source)
