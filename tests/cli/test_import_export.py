"""`softlook import` and `softlook export`, and behaviour that all commands share."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from softlook.cli import main
from softlook.models import GPT, Transformer
from softlook.weights import from_hugging_face, load, read_tokenizer, save
from tests.models.tiny import TINY
from tests.weights.folders import SIZES, change_config, checkpoint, hugging_face, tokenizer_json

IDS = torch.tensor([[3, 1, 4]])


@pytest.fixture
def cwd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command in this process: its exit code, stdout and stderr."""

    def call(*args: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exited:
            main(args)
        out, err = capsys.readouterr()
        return int(exited.value.code or 0), out, err

    return call


def hugging_face_with_tokenizer(folder: Path) -> Path:
    hugging_face(folder)
    (folder / "tokenizer.json").write_text(tokenizer_json(), encoding="utf-8")
    return folder


def test_a_hugging_face_folder_is_imported(cwd: Path, run: Any) -> None:
    model = from_hugging_face(hugging_face_with_tokenizer(cwd / "gpt2"))
    code, out, err = run("import", "gpt2", "--to", "mine")
    assert (code, out) == (0, "mine\n")
    assert err.startswith("gpt2: GPT-2 (causal_lm), loaded as GPT\nGPT with 6,896 parameters in float32\nNext:\n")
    assert '  softlook generate mine "..."  ' in err
    torch.testing.assert_close(load("mine")(IDS), model(IDS), rtol=0, atol=0)
    assert read_tokenizer("mine").encode("ab").ids == [2]


def test_a_checkpoint_is_exported_to_hugging_face(cwd: Path, run: Any) -> None:
    checkpoint(cwd / "mine")
    code, out, err = run("export", "hf", "mine")
    assert (code, out) == (0, "mine-hf\n")
    assert 'AutoModelForCausalLM.from_pretrained("mine-hf")' in err
    torch.testing.assert_close(from_hugging_face("mine-hf")(IDS), load("mine")(IDS), rtol=0, atol=0)
    assert read_tokenizer("mine-hf").get_vocab_size() == 3


def test_the_output_folder_is_positional_or_a_flag(cwd: Path, run: Any) -> None:
    checkpoint(cwd / "mine")
    assert run("export", "hf", "mine", "one")[1] == "one\n"
    assert run("export", "hf", "mine", "--to", "other")[1] == "other\n"


def test_the_default_output_folder_is_named_after_the_source_and_in_the_working_directory(cwd: Path, run: Any) -> None:
    hugging_face_with_tokenizer(cwd / "deep" / "gpt2")
    assert run("import", "deep/gpt2/")[1] == "gpt2-softlook\n"
    assert (cwd / "gpt2-softlook").is_dir()


def test_the_working_directory_itself_can_be_imported(cwd: Path, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(hugging_face_with_tokenizer(cwd / "gpt2"))
    assert run("import", ".", "--quiet") == (0, "gpt2-softlook\n", "")


def test_nothing_is_overwritten_and_no_model_is_read_first(cwd: Path, run: Any) -> None:
    (cwd / "mine").mkdir()
    code, out, err = run("import", "no-such-folder", "--to", "mine")
    assert (code, out) == (74, "")
    assert err == "error: mine already exists and is not overwritten. Choose another name with --to.\n"


def test_quiet_prints_only_the_path_and_errors(cwd: Path, run: Any) -> None:
    hugging_face_with_tokenizer(cwd / "gpt2")
    change_config(cwd / "gpt2", invented=1)
    assert run("import", "gpt2", "-q") == (0, "gpt2-softlook\n", "")
    assert run("-q", "import", "gpt2")[0] == 74


def test_json_output_is_one_object(cwd: Path, run: Any) -> None:
    hugging_face_with_tokenizer(cwd / "gpt2")
    code, out, _ = run("import", "gpt2", "--json")
    assert code == 0
    assert json.loads(out) == {
        "path": "gpt2-softlook",
        "architecture": "GPT-2",
        "head": "causal_lm",
        "tokenizer": True,
        "model": "GPT",
        "parameters": 6896,
        "dtype": "float32",
    }


@pytest.mark.parametrize("args", [("--json", "import", "gone"), ("import", "gone", "--json")])
def test_with_json_an_error_is_an_object_on_stdout(args: tuple[str, ...], cwd: Path, run: Any) -> None:
    code, out, err = run(*args)
    assert code == 65
    message = "gone is not a folder. Expected a folder with config.json and model.safetensors."
    assert json.loads(out) == {"error": {"code": 65, "kind": "data", "message": message}}
    assert err == f"error: {message}\n"


def test_ignored_config_fields_are_reported(cwd: Path, run: Any) -> None:
    hugging_face_with_tokenizer(cwd / "gpt2")
    change_config(cwd / "gpt2", invented=1)
    assert "note: gpt2/config.json: ignoring unknown fields: invented\n" in run("import", "gpt2")[2]


def test_importing_without_a_tokenizer_is_reported(cwd: Path, run: Any) -> None:
    hugging_face(cwd / "gpt2")
    code, _, err = run("import", "gpt2")
    assert code == 0
    assert "gpt2 has no tokenizer.json: the model is imported without a tokenizer.\n" in err
    assert not (cwd / "gpt2-softlook" / "tokenizer.json").exists()


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (("imprt", "gpt2"), 2, r'error: unknown command "imprt". Did you mean "import"?'),
        (("import", "gpt2", "--tto", "x"), 2, "error: unknown option --tto. Did you mean --to?"),
        (("import",), 2, "error: softlook import expects SOURCE. "),
        (("export", "hf", "gpt2"), 65, "is a Hugging Face folder, not a softlook checkpoint. Use "),
        (("import", "mine"), 65, "mine is a softlook checkpoint. Use weights.load."),
        (("import", "model.pt"), 65, "model.pt is not a folder. It looks like a pickle"),
        (
            ("import", "gpt2", "--to", "mine/model.safetensors/x"),
            74,
            "model.safetensors is not a folder. Choose another",
        ),
        (("export", "ctranslate2", "bert"), 65, "CTranslate2 export supports GPT and Transformer"),
        (("export", "hf", "xl"), 65, "Hugging Face has no architecture for this TransformerXL. Supported: "),
        (("import", "missing.gguf"), 65, "missing.gguf is not a file. Give the GGUF file itself."),
    ],
)
def test_every_error_has_its_exit_code_and_one_message(
    args: tuple[str, ...], code: int, message: str, cwd: Path, run: Any
) -> None:
    hugging_face_with_tokenizer(cwd / "gpt2")
    checkpoint(cwd / "mine")
    save(TINY["Bert"].build(), cwd / "bert")
    save(TINY["TransformerXL"].build(), cwd / "xl")
    before = sorted(cwd.rglob("*"))
    actual, out, err = run(*args)
    assert (actual, out) == (code, "")
    assert err.splitlines()[-1].startswith("error: ")
    assert message in err
    assert "Traceback" not in err
    assert sorted(cwd.rglob("*")) == before


def test_a_tokenizer_that_panics_is_reported_as_an_error(cwd: Path, run: Any) -> None:
    hugging_face_with_tokenizer(cwd / "gpt2")
    broken = tokenizer_json(pre_tokenizer={"type": "FixedLength", "length": 0})
    (cwd / "gpt2" / "tokenizer.json").write_text(broken, encoding="utf-8")
    code, out, err = run("import", "gpt2")
    assert (code, out) == (65, "")
    assert "error: gpt2/tokenizer.json is not a working tokenizer: chunk size must be non-zero. Leave it out" in err
    assert not (cwd / "gpt2-softlook").exists()


def test_an_internal_error_is_reported_and_debug_prints_the_traceback(
    cwd: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: Path) -> None:
        raise ZeroDivisionError("oh no")

    checkpoint(cwd / "mine")
    monkeypatch.setattr("softlook.weights.load", broken)
    code, _, err = run("export", "hf", "mine")
    assert code == 70
    assert err == "error: ZeroDivisionError: oh no. This is an internal error; --debug shows the traceback.\n"
    _, _, err = run("export", "hf", "mine", "--debug")
    assert "Traceback" in err
    assert "in broken" in err


def test_a_missing_package_is_reported_with_the_extra_to_install(
    cwd: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint(cwd / "mine")
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.delitem(sys.modules, "softlook.weights.formats.onnx", raising=False)
    code, out, err = run("export", "onnx", "mine")
    assert (code, out) == (69, "")
    assert err == "error: ONNX export needs: pip install softlook[onnx]\n"


def test_an_interrupt_ends_the_command(cwd: Path, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(path: Path) -> None:
        raise KeyboardInterrupt

    checkpoint(cwd / "mine")
    monkeypatch.setattr("softlook.weights.load", interrupted)
    assert run("export", "hf", "mine") == (130, "", "interrupted\n")


def test_control_characters_in_names_are_escaped(cwd: Path, run: Any) -> None:
    hugging_face_with_tokenizer(cwd / "gpt2")
    change_config(cwd / "gpt2", model_type="\x1b]52;c;evil\x07\x1b[2J")
    _, _, err = run("import", "gpt2")
    assert "\x1b" not in err
    assert "\x07" not in err
    _, _, err = run("import", "no\x1b[31mred\rfolder")
    assert "no\\x1b[31mred\\rfolder is not a folder" in err


def test_a_command_restores_the_loggers(cwd: Path, run: Any) -> None:
    logger = logging.getLogger("softlook")
    before = logger.level, logger.propagate, list(logger.handlers)
    run("import", "gone")
    assert (logger.level, logger.propagate, list(logger.handlers)) == before


def test_a_gpt_is_exported_to_onnx(cwd: Path, run: Any) -> None:
    save(GPT(SIZES), cwd / "mine")
    code, out, _ = run("export", "onnx", "mine")
    assert (code, out) == (0, "mine-onnx\n")
    assert (cwd / "mine-onnx" / "model.onnx").is_file()


def test_a_translation_model_is_exported_to_ctranslate2(cwd: Path, run: Any) -> None:
    tokens = ["<s>", "</s>", "<unk>", *"abcdefgh"]
    assert len(tokens) == TINY["Transformer"].config.vocab_size
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = cwd / "tokenizer.json"
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"}
    tokenizer.write_text(tokenizer_json(model=model), encoding="utf-8")
    translator = TINY["Transformer"].build()
    assert isinstance(translator, Transformer)
    save(translator, cwd / "mine", tokenizer=tokenizer)
    code, out, err = run("export", "ctranslate2", "mine")
    assert (code, out) == (0, "mine-ctranslate2\n"), err
    assert (cwd / "mine-ctranslate2" / "model.bin").is_file()


def process(*args: str, **changes: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "softlook", *args]
    env = {**os.environ, "NO_COLOR": "1", "COLUMNS": "80", **changes.pop("env", {})}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env, **changes)


WITHOUT_TORCH = """
import sys
from softlook.cli import main
try:
    main({args!r})
except SystemExit as exited:
    assert not exited.code, exited.code
heavy = [name for name in ("torch", "numpy", "transformers", "pydantic", "safetensors") if name in sys.modules]
assert not heavy, heavy
"""


@pytest.mark.parametrize(
    "args",
    [["--help"], ["--version"], [], ["import", "--help"], ["export", "--help"], ["export", "onnx", "-h"]],
    ids=str,
)
def test_help_does_not_import_torch(args: list[str]) -> None:
    code = WITHOUT_TORCH.format(args=args)
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
    assert child.stdout.strip()


def test_help_starts_with_examples_and_lists_the_exit_codes() -> None:
    help = process("--help").stdout
    assert help.lstrip().startswith("softlook train translate")
    assert all(f"{code} " in help for code in (0, 2, 65, 69, 70, 74, 130))
    assert "\x1b" not in help
    assert max(map(len, help.splitlines())) <= 80


def test_help_is_ascii_on_an_ascii_terminal() -> None:
    help = process("--help", env={"PYTHONIOENCODING": "ascii", "TERM": "dumb"})
    assert help.returncode == 0
    assert help.stdout.isascii()


def test_the_package_can_be_run_as_a_module(cwd: Path) -> None:
    hugging_face_with_tokenizer(cwd / "gpt2")
    completed = process("import", "gpt2", "--to", "mine", cwd=cwd)
    assert (completed.returncode, completed.stdout) == (0, "mine\n"), completed.stderr
    assert "\x1b" not in completed.stderr
    assert (cwd / "mine" / "manifest.json").is_file()


def test_a_closed_pipe_ends_the_command_silently(cwd: Path) -> None:
    hugging_face_with_tokenizer(cwd / "gpt2")
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "softlook", "import", "gpt2", "-q"]
    completed = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False, cwd=cwd)
    os.close(write)
    assert (completed.returncode, completed.stderr) == (141, "")
