"""The command line brings weights in and out, and says what it did."""

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
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command in this process: its exit code, and what it said to stdout and to stderr."""

    def call(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(words)
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return call


def theirs(folder: Path) -> Path:
    hugging_face(folder)
    (folder / "tokenizer.json").write_text(tokenizer_json(), encoding="utf-8")
    return folder


def test_a_hugging_face_folder_is_imported(here: Path, run: Any) -> None:
    model = from_hugging_face(theirs(here / "gpt2"))
    code, out, err = run("import", "gpt2", "--to", "mine")
    assert (code, out) == (0, "mine\n")
    assert err == "gpt2: GPT-2 (words), loaded as GPT\nGPT with 6,896 parameters in float32\n"
    torch.testing.assert_close(load("mine")(IDS), model(IDS), rtol=0, atol=0)
    assert read_tokenizer("mine").encode("ab").ids == [2]


def test_a_checkpoint_goes_back_to_hugging_face(here: Path, run: Any) -> None:
    checkpoint(here / "mine")
    code, out, _ = run("export", "hf", "mine")
    assert (code, out) == (0, "mine-hf\n")
    torch.testing.assert_close(from_hugging_face("mine-hf")(IDS), load("mine")(IDS), rtol=0, atol=0)
    assert read_tokenizer("mine-hf").get_vocab_size() == 3


def test_the_output_folder_is_positional_or_a_flag(here: Path, run: Any) -> None:
    checkpoint(here / "mine")
    assert run("export", "hf", "mine", "one")[1] == "one\n"
    assert run("export", "hf", "mine", "--to", "other")[1] == "other\n"


def test_a_target_is_named_after_its_source_and_lies_in_the_working_folder(here: Path, run: Any) -> None:
    theirs(here / "deep" / "gpt2")
    assert run("import", "deep/gpt2/")[1] == "gpt2-softlook\n"
    assert (here / "gpt2-softlook").is_dir()


def test_the_working_folder_itself_can_be_imported(here: Path, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(theirs(here / "gpt2"))
    assert run("import", ".", "--quiet") == (0, "gpt2-softlook\n", "")


def test_nothing_is_overwritten_and_no_model_is_read_first(here: Path, run: Any) -> None:
    (here / "mine").mkdir()
    code, out, err = run("import", "no-such-folder", "--to", "mine")
    assert (code, out) == (74, "")
    assert err == "error: mine already exists and is not overwritten. Choose another name with --to.\n"


def test_quiet_says_only_what_went_wrong(here: Path, run: Any) -> None:
    theirs(here / "gpt2")
    change_config(here / "gpt2", invented=1)
    assert run("import", "gpt2", "-q") == (0, "gpt2-softlook\n", "")
    assert run("-q", "import", "gpt2")[0] == 74


def test_json_is_one_object(here: Path, run: Any) -> None:
    theirs(here / "gpt2")
    code, out, _ = run("import", "gpt2", "--json")
    assert code == 0
    assert json.loads(out) == {
        "path": "gpt2-softlook",
        "architecture": "GPT-2",
        "head": "masked_lm",
        "tokenizer": True,
        "model": "GPT",
        "parameters": 6896,
        "dtype": "float32",
    }


@pytest.mark.parametrize("words", [("--json", "import", "gone"), ("import", "gone", "--json")])
def test_an_error_is_json_where_the_result_would_be(words: tuple[str, ...], here: Path, run: Any) -> None:
    code, out, err = run(*words)
    assert code == 65
    message = "gone is not a folder. Expected a folder with config.json and model.safetensors."
    assert json.loads(out) == {"error": {"code": 65, "kind": "data", "message": message}}
    assert err == f"error: {message}\n"


def test_fields_that_are_left_out_are_named(here: Path, run: Any) -> None:
    theirs(here / "gpt2")
    change_config(here / "gpt2", invented=1)
    assert "note: gpt2/config.json: ignoring unknown fields: invented\n" in run("import", "gpt2")[2]


def test_importing_without_a_tokenizer_is_reported(here: Path, run: Any) -> None:
    hugging_face(here / "gpt2")
    code, _, err = run("import", "gpt2")
    assert code == 0
    assert "gpt2 has no tokenizer.json: the model is imported without a tokenizer.\n" in err
    assert not (here / "gpt2-softlook" / "tokenizer.json").exists()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("imprt", "gpt2"), 2, r'error: Unknown command "imprt". Did you mean "import"?'),
        (("import", "gpt2", "--tto", "x"), 2, "error: Unknown option: --tto. Did you mean --to?"),
        (("import",), 2, 'error: Command "import" parameter'),
        (("export", "hf", "gpt2"), 65, "is a Hugging Face folder, not a softlook checkpoint. Use "),
        (("import", "mine"), 65, "mine is a checkpoint of softlook's. Use weights.load."),
        (("import", "model.pt"), 65, "model.pt is not a folder. It looks like a pickle"),
        (
            ("import", "gpt2", "--to", "mine/model.safetensors/x"),
            74,
            "model.safetensors is not a folder. Choose another",
        ),
        (("export", "ctranslate2", "bert"), 65, "CTranslate2 is written for GPT and Transformer"),
        (("export", "hf", "xl"), 65, "Hugging Face has no architecture for this TransformerXL. Supported: "),
        (("import", "missing.gguf"), 65, "missing.gguf is not a file. Expected a GGUF file."),
    ],
)
def test_every_error_has_its_code_and_one_clear_message(
    words: tuple[str, ...], code: int, message: str, here: Path, run: Any
) -> None:
    theirs(here / "gpt2")
    checkpoint(here / "mine")
    save(TINY["Bert"].build(), here / "bert")
    save(TINY["TransformerXL"].build(), here / "xl")
    before = sorted(here.rglob("*"))
    ended, out, err = run(*words)
    assert (ended, out) == (code, "")
    assert err.splitlines()[-1].startswith("error: ")
    assert message in err
    assert "Traceback" not in err
    assert sorted(here.rglob("*")) == before


def test_a_tokenizer_that_panics_is_an_error_like_any_other(here: Path, run: Any) -> None:
    theirs(here / "gpt2")
    broken = tokenizer_json(pre_tokenizer={"type": "FixedLength", "length": 0})
    (here / "gpt2" / "tokenizer.json").write_text(broken, encoding="utf-8")
    code, out, err = run("import", "gpt2")
    assert (code, out) == (65, "")
    assert "error: gpt2/tokenizer.json is not a working tokenizer: chunk size must be non-zero. Leave it out" in err
    assert not (here / "gpt2-softlook").exists()


def test_an_internal_error_is_reported_and_debug_prints_the_traceback(
    here: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: Path) -> None:
        raise ZeroDivisionError("oh no")

    monkeypatch.setattr("softlook.weights.load", broken)
    code, _, err = run("export", "hf", "mine")
    assert code == 70
    assert err == "error: ZeroDivisionError: oh no. This is an internal error; --debug shows the traceback.\n"
    _, _, err = run("export", "hf", "mine", "--debug")
    assert "Traceback" in err
    assert "in broken" in err


def test_a_package_that_is_missing_is_named(here: Path, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint(here / "mine")
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.delitem(sys.modules, "softlook.weights.formats.onnx", raising=False)
    code, out, err = run("export", "onnx", "mine")
    assert (code, out) == (69, "")
    assert err == "error: to write for ONNX, install its packages: pip install softlook[onnx]\n"


def test_an_interrupt_ends_the_command(here: Path, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(path: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("softlook.weights.load", interrupted)
    assert run("export", "hf", "mine") == (130, "", "interrupted\n")


def test_nothing_in_a_name_can_act_on_a_terminal(here: Path, run: Any) -> None:
    theirs(here / "gpt2")
    change_config(here / "gpt2", model_type="\x1b]52;c;evil\x07\x1b[2J")
    _, _, err = run("import", "gpt2")
    assert "\x1b" not in err
    assert "\x07" not in err
    _, _, err = run("import", "no\x1b[31mred\rfolder")
    assert "no\\x1b[31mred\\rfolder is not a folder" in err


def test_the_loggers_are_left_as_they_were(here: Path, run: Any) -> None:
    logger = logging.getLogger("softlook")
    before = logger.level, logger.propagate, list(logger.handlers)
    run("import", "gone")
    assert (logger.level, logger.propagate, list(logger.handlers)) == before


def test_a_gpt_becomes_a_graph(here: Path, run: Any) -> None:
    save(GPT(SIZES), here / "mine")
    code, out, _ = run("export", "onnx", "mine")
    assert (code, out) == (0, "mine-onnx\n")
    assert (here / "mine-onnx" / "model.onnx").is_file()


def test_a_translation_model_is_exported_to_ctranslate2(here: Path, run: Any) -> None:
    tokens = ["<s>", "</s>", "<unk>", *"abcdefgh"]
    assert len(tokens) == TINY["Transformer"].config.vocab_size
    vocabulary = {token: i for i, token in enumerate(tokens)}
    words = here / "tokenizer.json"
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"}
    words.write_text(tokenizer_json(model=model), encoding="utf-8")
    translator = TINY["Transformer"].build()
    assert isinstance(translator, Transformer)
    save(translator, here / "mine", tokenizer=words)
    code, out, err = run("export", "ctranslate2", "mine")
    assert (code, out) == (0, "mine-ctranslate2\n"), err
    assert (here / "mine-ctranslate2" / "model.bin").is_file()


def process(*words: str, **changes: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "softlook", *words]
    env = {**os.environ, "NO_COLOR": "1", "COLUMNS": "80", **changes.pop("env", {})}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env, **changes)


WITHOUT_TORCH = """
import sys
from softlook.cli import main
try:
    main({words!r})
except SystemExit as ended:
    assert not ended.code, ended.code
heavy = [name for name in ("torch", "numpy", "transformers", "pydantic", "safetensors") if name in sys.modules]
assert not heavy, heavy
"""


@pytest.mark.parametrize(
    "words",
    [["--help"], ["--version"], [], ["import", "--help"], ["export", "--help"], ["export", "onnx", "-h"]],
    ids=str,
)
def test_help_does_not_wait_for_torch(words: list[str]) -> None:
    code = WITHOUT_TORCH.format(words=words)
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
    assert child.stdout.strip()


def test_help_opens_with_examples_and_tells_the_exit_codes() -> None:
    shown = process("--help").stdout
    assert shown.lstrip().startswith("softlook train translate")
    assert all(f"{code} " in shown for code in (0, 2, 65, 69, 70, 74, 130))
    assert "\x1b" not in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_help_can_be_read_where_there_are_only_plain_letters() -> None:
    shown = process("--help", env={"PYTHONIOENCODING": "ascii", "TERM": "dumb"})
    assert shown.returncode == 0
    assert shown.stdout.isascii()


def test_the_module_is_the_command(here: Path) -> None:
    theirs(here / "gpt2")
    ended = process("import", "gpt2", "--to", "mine", cwd=here)
    assert (ended.returncode, ended.stdout) == (0, "mine\n"), ended.stderr
    assert "\x1b" not in ended.stderr
    assert (here / "mine" / "manifest.json").is_file()


def test_a_closed_pipe_ends_the_command_silently(here: Path) -> None:
    theirs(here / "gpt2")
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "softlook", "import", "gpt2", "-q"]
    ended = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False, cwd=here)
    os.close(write)
    assert (ended.returncode, ended.stderr) == (141, "")
