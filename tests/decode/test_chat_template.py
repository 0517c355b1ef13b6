"""Chat templates are untrusted code: they run in a sandbox, with bounds on time, memory and output."""

import asyncio
import gc
import json
import os
import resource
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from softlook.base.errors import DataError, WeightsError
from softlook.decode import chat_template as template_module
from softlook.decode.chat_template import MAX_OUTPUT_CHARS, ChatTemplate, load_chat_template
from softlook.decode.chat_template_worker import MAX_OUTPUT_CHARS as WORKER_MAX_CHARS

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
    "environment": "{{ messages.__init__.__globals__ }}{{ self.__init__ }}",
}
BOMBS = {
    "ljust": "{{ 'a'.ljust(3000000000) }}",
    "rjust": "{{ messages[0].content.rjust(3000000000)|length }}",
    "zfill": "{{ messages[0].content.zfill(3000000000)|length }}",
    "expandtabs": "{{ (messages[0].content ~ '\t').expandtabs(2000000000)|length }}",
    "slice, constant-folded at compile time": "{{ [1]|slice(200000000)|list|length }}",
    "slice": "{{ messages|slice(200000000)|list|length }}",
    "batch": "{{ messages|batch(2000000000, 'a')|list|length }}",
    "lipsum": "{{ lipsum(n=100000000)|length }}",
    "doubling": "{% set n = namespace(x='a') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "replacing": "{{ ('a'|replace('', 'aaaaaaaa'))"
    + "|replace('a', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa')" * 9
    + "|length }}",
    "a date": "{{ strftime_now('%2000000000d')|length }}",
    "indented": "{{ [messages]|tojson(indent=2000000000)|length * 0 }}",
    "two loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
}
"""Templates that would take gigabytes or hours."""
HARMLESS = ("indented", "a date")
"""Templates that the sandbox makes harmless."""


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_template_cannot_leave_the_sandbox(attack: str) -> None:
    start = time.monotonic()
    try:
        rendered = ChatTemplate(ATTACKS[attack]).render(HELLO)
    except (DataError, WeightsError) as error:
        assert "template" in str(error)
    else:  # jinja2 renders undefined values as an empty string
        assert "class" not in rendered and "root:" not in rendered and len(rendered) < 10, rendered
    assert time.monotonic() - start < 20
    assert HELLO == [{"role": "user", "content": "hello"}]


def peak_memory_of_children() -> int:
    """The largest resident memory of any finished child process, in bytes."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_template_that_exceeds_its_limits_ends_only_its_process(bomb: str) -> None:
    code = f"""
import resource
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))  # in case every other limit fails
from chat_template_worker import Worker, _limit_memory
_limit_memory()
worker = Worker()
for message in ({{"source": {BOMBS[bomb]!r}, "names": {{}}}}, {{"messages": {HELLO!r}}}):
    answer = worker.handle({{"cpu_seconds": 1.0, **message}})
    assert len(str(answer)) < 1000 and answer.keys() & {{"text", "violation", "error"}}, answer
    print(answer)
"""
    folder = Path(template_module.__file__).parent
    before = peak_memory_of_children()
    result = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=120)
    assert result.returncode in (0, -signal.SIGPROF), result.stderr
    assert "violation" in result.stdout or "error" in result.stdout or result.returncode or bomb in HARMLESS, (
        result.stdout
    )
    assert peak_memory_of_children() <= max(before, 1 << 30)  # other tests may have started larger ones


def test_after_a_violation_the_next_conversation_is_rendered() -> None:
    source = "{% if messages|length > 1 %}{{ 'a'.ljust(3000000000) }}{% endif %}{{ messages[0].content }}"
    template = ChatTemplate(source)
    assert template.render(HELLO) == "hello"
    with pytest.raises(DataError, match="takes too much memory"):
        template.render(HELLO * 2)
    assert template.render(HELLO) == "hello"
    os.kill(process_of(template).pid, signal.SIGKILL)
    process_of(template).wait()
    assert template.render(HELLO) == "hello"


def test_a_template_that_is_too_expensive_to_compile_is_rejected_at_startup() -> None:
    with pytest.raises(WeightsError, match="cannot be compiled: the model's chat template takes too"):
        ChatTemplate(BOMBS["slice, constant-folded at compile time"], cpu_seconds=0.3)


def process_of(template: ChatTemplate) -> Any:
    return template.worker._process


def test_conversations_of_many_threads_do_not_mix() -> None:
    template = ChatTemplate("{{ messages[0].content }}")
    texts = [f"{number} é\ud800\n" * 50 for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda text: template.render([{"role": "user", "content": text}]), texts))
    assert found == texts


def test_a_slow_template_does_not_occupy_shared_threads() -> None:
    slow = ChatTemplate(
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", cpu_seconds=0.05
    )

    async def both() -> bool:
        crowd = [asyncio.create_task(slow.render_async(HELLO)) for _ in range(40)]
        await asyncio.to_thread(int)
        waiting = not all(task.done() for task in crowd)
        for task in crowd:
            task.cancel()
        await asyncio.gather(*crowd, return_exceptions=True)
        return waiting

    assert asyncio.run(both())


def test_one_process_renders_all_conversations_and_ends_with_its_template() -> None:
    template = ChatTemplate("{{ messages[0].content }}")
    process = process_of(template)
    assert [template.render(HELLO) for _ in range(3)] == ["hello"] * 3 and process_of(template) is process
    del template
    gc.collect()
    assert process.returncode is not None


def test_the_template_process_has_no_access_to_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOFTLOOK_TOKEN", "correct-horse-battery-staple")
    template = ChatTemplate("a")
    environment = Path(f"/proc/{process_of(template).pid}/environ")
    if not environment.exists():
        pytest.skip("this system does not show the environment of a process")
    assert b"correct-horse" not in environment.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_template_process_ends_with_its_parent(number: signal.Signals) -> None:
    code = "from softlook.decode.chat_template import ChatTemplate\nt = ChatTemplate('a')\n"
    code += "print(t.worker._process.pid, flush=True)\nimport time\ntime.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.send_signal(number)
    for _ in range(100):
        if not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text().split()[2]:
            return
        time.sleep(0.05)
    raise AssertionError("the template process is still running")


def test_an_endless_template_is_killed() -> None:
    endless = "{% set r = range(99999) %}{% for i in r %}{% for j in r %}{% endfor %}{% endfor %}"
    start = time.monotonic()
    with pytest.raises(DataError, match="takes too long"):
        ChatTemplate(endless, cpu_seconds=0.2).render(HELLO)
    assert time.monotonic() - start < 20


def test_a_template_with_too_long_an_output_is_rejected() -> None:
    verbose = "{% for i in range(99999) %}{{ messages[0].content }}{% endfor %}"
    with pytest.raises(DataError, match=f"more than {MAX_OUTPUT_CHARS:,} characters"):
        ChatTemplate(verbose, cpu_seconds=60).render([{"role": "user", "content": "a" * 100}])
    assert MAX_OUTPUT_CHARS == WORKER_MAX_CHARS


def test_common_template_features_work() -> None:
    source = (
        "{{ bos_token }}{% for message in messages %}{% if loop.index0 % 2 == 1 and message.role != 'assistant' %}"
        "{{ raise_exception('roles must alternate') }}{% endif %}"
        "<|{{ message['role'] }}|>{{ message['content'] | trim }}{{ eos_token }}\n{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}{{ {'é': 1} | tojson }}"
    )
    template = ChatTemplate(source, bos="<s>", eos="</s>")
    assert template.render([{"role": "user", "content": " hi "}]) == '<s><|user|>hi</s>\n<|assistant|>{"é": 1}'
    with pytest.raises(DataError, match="roles must alternate"):
        template.render([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}])


def test_the_template_is_loaded_from_the_model_folder(tmp_path: Path) -> None:
    assert load_chat_template(tmp_path) is None
    settings = {"chat_template": "{{ eos_token }}1", "eos_token": {"content": "</s>"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    first = load_chat_template(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{{ eos_token }}2")
    second = load_chat_template(tmp_path)
    assert first is not None and second is not None
    assert (first.render(HELLO), second.render(HELLO)) == ("</s>1", "</s>2")
    several = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "yes"}]
    (tmp_path / "chat_template.jinja").unlink()
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": several}))
    named = load_chat_template(tmp_path)
    assert named is not None and named.render(HELLO) == "yes"


def test_an_interrupted_rendering_does_not_answer_the_next_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    template = ChatTemplate("{{ messages[0].content }}")
    process = template.worker._process
    assert process is not None and process.stdout is not None

    class Interrupted:
        """A pipe whose reader is interrupted before it reads."""

        def readline(self, limit: int) -> bytes:
            raise KeyboardInterrupt

        close = process.stdout.close

    monkeypatch.setattr(process, "stdout", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        template.render([{"role": "user", "content": "first"}])
    assert template.render([{"role": "user", "content": "second"}]) == "second"


@pytest.mark.parametrize("source", ["{% for %}", "{{ a", "a" * 300_000])
def test_an_invalid_template_is_rejected_at_startup(source: str) -> None:
    with pytest.raises(WeightsError, match="chat template"):
        ChatTemplate(source)
