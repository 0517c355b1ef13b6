"""Trained models answer on the command line: from words, files and pipes, as lines or as JSON."""

import gzip
import io
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest
import torch

from tests.recipes.trained_runs import train_runs

DATES = {"jeudi 3 mars 2022": "2022-03-03", "25 décembre 1999": "1999-12-25", "3. März 2022": "2022-03-03"}

GREEDY = "translate", "dates", "--num-beams", "1"


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


Ask = Callable[..., Said]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return train_runs(tmp_path_factory.mktemp("asked"))


@pytest.fixture
def ask(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """A command on the CPU, with what comes through its pipe."""
    from softlook.cli import main  # noqa: PLC0415  (after pytest has switched on the shape checks)

    monkeypatch.chdir(tmp_path)

    def asked(*words: str | Path, stdin: str | bytes = b"") -> Said:
        content = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        with pytest.raises(SystemExit) as ended:
            main([*map(str, words), "--device", "cpu"])
        assert isinstance(ended.value.code, int)
        return Said(ended.value.code, *capsys.readouterr())

    return asked


# --- translate -------------------------------------------------------------------------------------------------------


def test_the_included_model_translates_dates(ask: Ask) -> None:
    said = ask("translate", "dates", *DATES)
    assert said == Said(0, "".join(f"{iso}\n" for iso in DATES.values()), "")


def test_every_line_has_its_line_and_an_empty_one_stays_empty(ask: Ask) -> None:
    said = ask(*GREEDY, stdin="3 mars 2022\n\n  \r\n25 décembre 1999\n\n3. März 2022")
    assert said.lines == ["2022-03-03", "", "", "1999-12-25", "", "2022-03-03"]


def test_files_a_pipe_and_words_are_answered_alike_and_in_order(ask: Ask, tmp_path: Path) -> None:
    texts = [*DATES, "1/2/03", "четвер, 3 березня 2022 р.", "no date"]
    (tmp_path / "a.txt").write_text("\n".join(texts[:4]) + "\n", encoding="utf-8")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress("\n".join(texts[4:]).encode()))
    piped = ask(*GREEDY, stdin="\n".join(texts))
    assert (piped.code, piped.lines[:3]) == (0, list(DATES.values()))
    assert ask(*GREEDY, "--file", "a.txt", "b.txt.gz") == piped
    assert [ask(*GREEDY, text).out for text in texts[::5]] == [line + "\n" for line in piped.lines[::5]]


def test_several_candidates_are_sorted_and_the_first_is_the_answer(ask: Ask) -> None:
    rows = [line.split("\t") for line in ask("translate", "dates", *DATES, "--n-best", "3", "--num-beams", "3").lines]
    for number, best in enumerate(DATES.values(), 1):
        own = [(float(score), text) for line, score, text in rows if line == str(number)]
        assert len(own) == 3 and own[0][1] == best
        assert [score for score, _ in own] == sorted((score for score, _ in own), reverse=True)


def test_digits_of_the_answer_look_at_digits_of_the_date(ask: Ask) -> None:
    (found,) = ask("--json", *GREEDY, "25 décembre 1999", "--alignments").objects
    look = found["alignment"]
    assert "".join(look["source"]) == "25 décembre 1999" and "".join(look["target"]) == "1999-12-25"
    strongest = [look["source"][max(range(len(row)), key=row.__getitem__)] for row in look["weights"]]
    day_and_year = [
        (said, at)
        for said, at, place in zip(look["target"], strongest, range(10), strict=True)
        if place in (0, 1, 2, 3, 8, 9)
    ]
    assert all(said == at for said, at in day_and_year)
    assert all(at in "décembre" for at in strongest[5:7])


def test_alignments_stand_behind_each_line_as_pairs_of_words_or_of_tokens(ask: Ask) -> None:
    answer, words = ask(*GREEDY, "jeudi 3 mars 2022", "--alignments").lines[0].split("\t")
    assert (answer, words) == ("2022-03-03", "3-0")  # the one word that is said looks most at the year
    tokens = ask(*GREEDY, "jeudi 3 mars 2022", "--token-alignments").lines[0].split("\t")[1]
    pairs = [tuple(map(int, pair.split("-"))) for pair in tokens.split()]
    assert sorted(target for _, target in pairs) == list(range(10))
    assert {source for source, target in pairs if target >= 8} == {6}  # 03 is the 3 before mars


def test_translations_are_scored_against_a_reference(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "right.txt").write_text("\n".join(DATES.values()) + "\n")
    said = ask(*GREEDY, "--reference", "right.txt", stdin="\n".join(DATES))
    assert said.lines == list(DATES.values())
    assert "BLEU" in said.err and "chrF 100.00  nrefs:1|" in said.err
    found = ask("--json", *GREEDY, "--reference", "right.txt", stdin="\n".join(DATES)).objects
    assert found[-1]["scores"]["chrf"] == 100 and "version" in found[-1]["scores"]["bleu_signature"]
    short = ask(*GREEDY, "3 mars 2022", "--reference", "right.txt")
    assert short.code == 65
    assert "right.txt: there are 1 translations and 3 references" in short.err


def test_int8_quantization_translates_dates(ask: Ask) -> None:
    assert ask("translate", "dates", *DATES, "--int8") == ask("translate", "dates", *DATES)
    words = "--json", "translate", "dates", *DATES, "--alignments", "--n-best", "2"
    for small, exact in zip(ask(*words, "--int8").objects, ask(*words).objects, strict=True):
        assert small.keys() == exact.keys()
        assert small["translation"] == exact["translation"] and small["score"] != exact["score"]
        assert small["score"] == pytest.approx(exact["score"], abs=0.05)


# --- generate --------------------------------------------------------------------------------------------------------


def test_generation_is_reproducible_with_a_seed(ask: Ask, runs: dict[str, Path]) -> None:
    words = "generate", runs["lm"], "the cat", "--max-new-tokens", "12"
    streamed = ask(*words, "--seed", "7")
    assert (streamed.code, streamed.err) == (0, "")
    (found,) = ask("--json", *words, "--seed", "7").objects
    assert found["text"].rstrip("\n") + "\n" == streamed.out.rstrip("\n") + "\n"
    assert found.keys() == {"prompt", "text", "finish_reason", "logprob", "tokens", "seed"}
    drawn = {ask("--json", *words).objects[0]["text"] for _ in range(6)}
    assert len(drawn) > 1  # without a seed, it is another one each time


def test_generation_with_int8_weights(ask: Ask, runs: dict[str, Path]) -> None:
    words = "--json", "generate", runs["lm"], "the cat", "--max-new-tokens", "6", "--temperature", "0"
    (small,), (exact,) = ask(*words, "--int8").objects, ask(*words).objects
    assert small.keys() == exact.keys()
    assert small["logprob"] != exact["logprob"]
    assert small["logprob"] == pytest.approx(exact["logprob"], abs=0.5)


def test_prompts_of_a_file_are_answered_as_each_would_be_in_its_place(
    ask: Ask, runs: dict[str, Path], tmp_path: Path
) -> None:
    prompts = ["the cat", "", "my king sees the moon", "t"]
    (tmp_path / "prompts.txt").write_text("\n".join(prompts) + "\n")
    words = "--json", "generate", runs["lm"], "--seed", "3", "--max-new-tokens", "8"
    together = ask(*words, "--file", "prompts.txt").objects
    assert [one["prompt"] for one in together] == prompts
    assert ask(*words, stdin="\n".join(prompts)).objects == together
    assert ask(*words, prompts[0]).objects == together[:1]


def test_samples_of_one_prompt_differ_and_are_separated_by_an_empty_line(ask: Ask, runs: dict[str, Path]) -> None:
    words = "generate", runs["lm"], "the", "--num-samples", "3", "--seed", "1", "--max-new-tokens", "9"
    texts = [one["text"] for one in ask("--json", *words).objects]
    assert len(set(texts)) == 3
    out = ask(*words).out
    assert out == "\n".join(text if text.endswith("\n") else text + "\n" for text in texts)


def test_a_stop_string_ends_an_answer_and_is_not_shown(ask: Ask, runs: dict[str, Path]) -> None:
    words = "--json", "generate", runs["lm"], "the cat", "--seed", "2", "--max-new-tokens", "40"
    (whole,) = ask(*words).objects
    stop = whole["text"][5]
    (ended,) = ask(*words, "--stop", stop.replace("\n", "\\n")).objects
    assert ended["text"] == whole["text"][: whole["text"].index(stop)] and ended["finish_reason"] == "stop"


def test_logprobs_are_printed_for_each_token(ask: Ask, runs: dict[str, Path]) -> None:
    words = "generate", runs["lm"], "the cat", "--logprobs", "--temperature", "0", "--max-new-tokens", "4"
    (found,) = ask("--json", *words).objects
    tokens = found["logprobs"]
    assert "".join(token["text"] for token in tokens) == found["text"]
    assert {token["rank"] for token in tokens} == {1} and found["seed"] is None
    total = sum(token["logprob"] for token in tokens)
    assert found["finish_reason"] != "length" or math.isclose(total, found["logprob"], abs_tol=1e-3)
    rows = [line.split("\t") for line in ask(*words).lines]
    assert [json.loads(text) for *_, text in rows] == [token["text"] for token in tokens]


def test_an_empty_prompt_generates_from_scratch_and_whole_file_reads_stdin_as_one_prompt(
    ask: Ask, runs: dict[str, Path]
) -> None:
    words = "--json", "generate", runs["lm"], "--temperature", "0", "--max-new-tokens", "5"
    assert [one["prompt"] for one in ask(*words).objects] == [""]
    assert [one["prompt"] for one in ask(*words, "--whole-file", stdin="the\ncat\n").objects] == ["the\ncat"]


def test_what_does_not_fit_is_an_error_with_its_place(ask: Ask, runs: dict[str, Path]) -> None:
    said = ask("generate", runs["lm"], "--max-new-tokens", "120", stdin="the\n" + "the cat " * 9 + "\n")
    assert said.code == 65
    assert "stdin:2: 120 new tokens after a prompt of" in said.err and "help: --max-new-tokens" in said.err


# --- classify --------------------------------------------------------------------------------------------------------


def test_lines_and_columns_are_classified_alike(ask: Ask, runs: dict[str, Path], tmp_path: Path) -> None:
    texts = ["film 1 was lovely", "film 2 was dull, long", "film 3 was fine"]
    (tmp_path / "new.csv").write_text("id,review\n" + "".join(f'{n},"{text}"\n' for n, text in enumerate(texts)))
    (tmp_path / "new.jsonl").write_text("".join(json.dumps({"review": text}) + "\n" for text in texts))
    said = ask("classify", runs["classify"], *texts)
    for line in said.lines:
        label, chance = line.split("\t")
        assert label in ("bad", "good") and 0.5 <= float(chance) <= 1
    for file in ("new.csv", "new.jsonl"):
        found = ask("classify", runs["classify"], "--file", file, "--text", "review")
        assert found == said
    guessed = ask("classify", runs["classify"], "--file", "new.csv")
    assert guessed.out == said.out and "'review'; --text selects another" in guessed.err
    assert ask("-q", "classify", runs["classify"], "--file", "new.csv").err == ""


def test_all_class_probabilities_sum_to_one(ask: Ask, runs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("one,two,id\nfilm 1 was,lovely,1\n")
    words = "--json", "classify", runs["classify"], "--file", "pairs.csv", "--text", "one", "--all"
    (alone,), (paired,) = ask(*words).objects, ask(*words, "--text-pair", "two").objects
    assert sum(alone["classes"].values()) == pytest.approx(1, abs=1e-4)
    assert alone["label"] == max(alone["classes"], key=alone["classes"].get)
    assert paired["text_pair"] == "lovely" and paired["classes"] != alone["classes"]


def test_an_empty_text_has_no_class_but_keeps_its_line(ask: Ask, runs: dict[str, Path]) -> None:
    said = ask("classify", runs["classify"], stdin="\nfilm 1\n\n")
    assert [bool(line) for line in said.lines] == [False, True, False]


# --- embed -----------------------------------------------------------------------------------------------------------


def test_vectors_are_the_same_in_every_kind_of_file(ask: Ask, runs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("the cat\nmy king sees bread\n")
    words = "embed", runs["mlm"], "--file", "texts.txt"
    shown = ask(*words).objects
    assert [one["text"] for one in shown] == ["the cat", "my king sees bread"]
    numbers = torch.tensor([one["embedding"] for one in shown])
    assert ask(*words, "--to", "v.npy").out == "v.npy\n"
    assert ask("--json", *words, "--to", "v.parquet").objects[0] == {"path": "v.parquet", "embeddings": 2, "dim": 32}
    ask(*words, "--to", "v.jsonl")
    table = pq.read_table(tmp_path / "v.parquet")
    kept = torch.tensor(table["embedding"].to_pylist())
    torch.testing.assert_close(kept, numbers)
    raw = (tmp_path / "v.npy").read_bytes()
    assert raw.startswith(b"\x93NUMPY\x01\x00") and b"'shape': (2, 32)" in raw[:128]
    torch.testing.assert_close(torch.frombuffer(bytearray(raw[128:]), dtype=torch.float32).view(2, 32), kept)
    assert [json.loads(line) for line in (tmp_path / "v.jsonl").read_text().splitlines()] == shown
    again = ask(*words, "--to", "v.npy")
    assert again.code == 74 and "v.npy exists already" in again.err


def test_embeddings_can_be_normalized(ask: Ask, runs: dict[str, Path]) -> None:
    (plain,) = ask("embed", runs["classify"], "film").objects
    (unit,) = ask("embed", runs["classify"], "film", "--normalize").objects
    (first,) = ask("embed", runs["classify"], "film", "--pooling", "cls").objects
    size = math.hypot(*plain["embedding"])
    assert math.hypot(*unit["embedding"]) == pytest.approx(1, abs=1e-5)
    assert [number / size for number in plain["embedding"]] == pytest.approx(unit["embedding"], abs=1e-5)
    assert first["embedding"] != plain["embedding"]


def test_word_vectors_are_those_the_run_wrote(ask: Ask, runs: dict[str, Path]) -> None:
    rows = (runs["word2vec"] / "vectors.txt").read_text(encoding="utf-8").splitlines()[1:]
    written = {row.split()[0]: [float(number) for number in row.split()[1:]] for row in rows}
    cat, both = ask("embed", runs["word2vec"], "cat", "cat sees").objects
    assert cat["embedding"] == pytest.approx(written["cat"], abs=1e-5)
    mean = [(one + other) / 2 for one, other in zip(written["cat"], written["sees"], strict=True)]
    assert both["embedding"] == pytest.approx(mean, abs=1e-5)
    unknown = ask("embed", runs["word2vec"], stdin="cat\nzebra\n")
    assert unknown.code == 65 and "stdin:2: there is no vector for 'zebra'" in unknown.err


def test_half_a_file_is_not_left_behind(ask: Ask, runs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes(b"cat\nsees\n\xff\n")
    for name in ("v.npy", "v.parquet", "v.jsonl"):
        said = ask("embed", runs["word2vec"], "--file", "bad.txt", "--to", name)
        assert said.code == 65 and "bad.txt:3:1: the byte 0xff is no UTF-8" in said.err
    assert [path.name for path in tmp_path.iterdir()] == ["bad.txt"]
    assert "can be written as .npy, .parquet, .jsonl" in ask("embed", runs["word2vec"], "cat", "--to", "v.h5").err
    (tmp_path / "file").write_text("")
    assert ask("embed", runs["word2vec"], "cat", "--to", "file/v.npy").code == 74


# --- what goes wrong -------------------------------------------------------------------------------------------------

WRONG = {
    "translate": ("classify", "says which class a text belongs to, and does not translate. Try: softlook classify"),
    "classify": ("translate", "translates, and does not classify. Try: softlook translate"),
    "generate": ("word2vec", "gives texts or words vectors, and does not generate. Try: softlook embed"),
    "embed": ("lm", "goes on with texts, and does not embed. Try: softlook generate"),
}


@pytest.mark.parametrize("command", WRONG)
def test_a_run_of_another_task_names_the_right_command(command: str, ask: Ask, runs: dict[str, Path]) -> None:
    task, words = WRONG[command]
    said = ask(command, runs[task], "a text")
    assert said.code == 65 and f"{runs[task]} {words} {runs[task]}" in said.err
    assert said.out == ""


def test_an_unknown_run_lists_the_available_ones(ask: Ask, tmp_path: Path) -> None:
    said = ask("--json", "translate", "nowhere", "a text")
    assert said.code == 65
    assert "'dates' is a reader" in said.objects[0]["error"]["message"] and "softlook runs" in said.err
    (tmp_path / "empty").mkdir()
    assert "empty holds neither a run nor a model" in ask("translate", "empty", "a").err
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    assert "`softlook import a.gguf`" in ask("generate", "a.gguf").err


def test_lines_before_a_bad_one_are_answered_and_the_bad_one_is_located(ask: Ask, tmp_path: Path) -> None:
    content = b"3 mars 2022\n" + b"caf\xe9\n" + b"4 mai 1998\n"
    piped = ask(*GREEDY, stdin=content)
    assert (piped.code, piped.out) == (65, "2022-03-03\n")
    assert "stdin:2:4: the byte 0xe9" in piped.err and "iconv" in piped.err
    (tmp_path / "bad.txt").write_bytes(content)
    filed = ask(*GREEDY, "--file", "bad.txt")
    assert (filed.code, filed.out) == (65, "2022-03-03\n") and "bad.txt:2:4: " in filed.err
    assert "nofile.txt: there is no such file" in ask("translate", "dates", "--file", "nofile.txt").err
    assert "texts and files cannot be combined" in ask("translate", "dates", "a", "--file", "bad.txt").err


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("translate", "dates", "a", "--num-beams", "0"), "1 to 256; 0 came"),
        (("translate", "dates", "a", "--n-best", "9", "--num-beams", "2"), "--beams 9"),
        (("generate", "lm", "a", "--temperature", "-1"), "0, for the likeliest word, or above"),
        (("generate", "lm", "a", "--top-p", "2"), "top_p is a share"),
        (("generate", "lm", "a", "--num-samples", "0"), "1 at least; 0 came"),
        (("generate", "lm", "a", "--json-schema", "schema.json"), "schema.json: this is no JSON"),
        (("classify", "classify", "--text", "review"), "Name one: --file"),
    ],
    ids=["beams", "n-best", "temperature", "top-p", "count", "schema", "column"],
)
def test_an_invalid_option_is_rejected(
    words: tuple[str, ...], wanted: str, ask: Ask, runs: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "schema.json").write_text("{")
    said = ask(*(runs.get(word, word) if place == 1 else word for place, word in enumerate(words)))
    assert said.code == 65 and wanted in said.err


# --- pipes -----------------------------------------------------------------------------------------------------------

COMMAND = [sys.executable, "-m", "softlook", *GREEDY, "--device", "cpu"]
ALONE = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}


def test_each_line_of_a_pipe_is_answered_before_the_next_arrives() -> None:
    with subprocess.Popen(COMMAND, stdin=-1, stdout=-1, stderr=-1, env=ALONE, text=True, encoding="utf-8") as child:
        assert child.stdin is not None and child.stdout is not None
        for date, iso in DATES.items():
            child.stdin.write(date + "\n")
            child.stdin.flush()
            assert child.stdout.readline() == iso + "\n"
        child.stdin.close()
        assert child.stdout.read() == ""
        assert child.wait(60) == 0


@pytest.mark.skipif(os.name == "nt", reason="no such pipes on Windows")
def test_nobody_listening_any_more_ends_it_quietly(tmp_path: Path) -> None:
    (tmp_path / "many.txt").write_text("3 mars 2022\n" * 8_000, encoding="utf-8")
    with subprocess.Popen([*COMMAND, "--file", tmp_path / "many.txt"], stdout=-1, stderr=-1, env=ALONE) as child:
        assert child.stdout is not None and child.stderr is not None
        assert child.stdout.readline() == b"2022-03-03\n"
        child.stdout.close()
        assert child.stderr.read() == b""
        assert child.wait(120) == 141
