"""Inference commands: texts from arguments, files and pipes, results as lines or as JSON."""

import gzip
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from softlook.recipes import train_causal_lm
from tests.cli.conftest import Completed, RunCommand
from tests.recipes.small import causal_lm_config
from tests.recipes.trained_runs import train_runs

DATES = {"jeudi 3 mars 2022": "2022-03-03", "25 décembre 1999": "1999-12-25", "3. März 2022": "2022-03-03"}

GREEDY = "translate", "dates", "--num-beams", "1"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return train_runs(tmp_path_factory.mktemp("inference"))


@pytest.fixture
def run(command: RunCommand) -> RunCommand:
    return command


# --- translate -------------------------------------------------------------------------------------------------------


def test_the_included_model_translates_dates(run: RunCommand) -> None:
    completed = run("translate", "dates", *DATES)
    assert completed == Completed(0, "".join(f"{iso}\n" for iso in DATES.values()), "")


def test_every_input_line_gives_an_output_line_and_an_empty_one_an_empty_one(run: RunCommand) -> None:
    completed = run(*GREEDY, stdin="3 mars 2022\n\n  \r\n25 décembre 1999\n\n3. März 2022")
    assert completed.lines == ["2022-03-03", "", "", "1999-12-25", "", "2022-03-03"]


def test_files_stdin_and_arguments_give_the_same_output_in_the_same_order(run: RunCommand, tmp_path: Path) -> None:
    texts = [*DATES, "1/2/03", "четвер, 3 березня 2022 р.", "not a date"]
    (tmp_path / "a.txt").write_text("\n".join(texts[:4]) + "\n", encoding="utf-8")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress("\n".join(texts[4:]).encode()))
    piped = run(*GREEDY, stdin="\n".join(texts))
    assert (piped.code, piped.lines[:3]) == (0, list(DATES.values()))
    assert run(*GREEDY, "--file", "a.txt", "b.txt.gz") == piped
    assert [run(*GREEDY, text).out for text in texts[::5]] == [line + "\n" for line in piped.lines[::5]]


def test_n_best_candidates_are_sorted_and_the_first_is_the_translation(run: RunCommand) -> None:
    rows = [line.split("\t") for line in run("translate", "dates", *DATES, "--n-best", "3", "--num-beams", "3").lines]
    for number, best in enumerate(DATES.values(), 1):
        candidates = [(float(score), text) for line, score, text in rows if line == str(number)]
        assert len(candidates) == 3 and candidates[0][1] == best
        assert [score for score, _ in candidates] == sorted((score for score, _ in candidates), reverse=True)


def test_digits_of_the_translation_are_aligned_with_digits_of_the_date(run: RunCommand) -> None:
    (result,) = run("--json", *GREEDY, "25 décembre 1999", "--alignments").objects
    alignment = result["alignment"]
    assert "".join(alignment["source"]) == "25 décembre 1999" and "".join(alignment["target"]) == "1999-12-25"
    aligned = [alignment["source"][max(range(len(row)), key=row.__getitem__)] for row in alignment["weights"]]
    for position in (0, 1, 2, 3, 8, 9):  # year and day
        assert alignment["target"][position] == aligned[position]
    assert len(alignment["target"]) == len(aligned) == 10
    assert all(source in "décembre" for source in aligned[5:7])


def test_alignments_follow_each_line_as_pairs_of_words_or_of_tokens(run: RunCommand) -> None:
    translation, words = run(*GREEDY, "jeudi 3 mars 2022", "--alignments").lines[0].split("\t")
    assert (translation, words) == ("2022-03-03", "3-0")  # the one target word is aligned with the year
    tokens = run(*GREEDY, "jeudi 3 mars 2022", "--token-alignments").lines[0].split("\t")[1]
    pairs = [tuple(map(int, pair.split("-"))) for pair in tokens.split()]
    assert sorted(target for _, target in pairs) == list(range(10))
    assert {source for source, target in pairs if target >= 8} == {6}  # 03 is aligned with the 3 before mars


def test_translations_are_scored_against_a_reference(run: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "references.txt").write_text("\n".join(DATES.values()) + "\n")
    completed = run(*GREEDY, "--reference", "references.txt", stdin="\n".join(DATES))
    assert completed.lines == list(DATES.values())
    assert "BLEU" in completed.err and "chrF 100.00  nrefs:1|" in completed.err
    result = run("--json", *GREEDY, "--reference", "references.txt", stdin="\n".join(DATES)).objects
    assert result[-1]["scores"]["chrf"] == 100 and "version" in result[-1]["scores"]["bleu_signature"]
    too_few = run(*GREEDY, "3 mars 2022", "--reference", "references.txt")
    assert too_few.code == 65
    assert "references.txt: there are 1 translations and 3 references" in too_few.err


def test_int8_quantization_translates_dates(run: RunCommand) -> None:
    assert run("translate", "dates", *DATES, "--int8") == run("translate", "dates", *DATES)
    args = "--json", "translate", "dates", *DATES, "--alignments", "--n-best", "2"
    for quantized, exact in zip(run(*args, "--int8").objects, run(*args).objects, strict=True):
        assert quantized.keys() == exact.keys()
        assert quantized["translation"] == exact["translation"]
        assert quantized["n_best"][1]["score"] != exact["n_best"][1]["score"]  # the best score rounds to the same
        assert quantized["score"] == pytest.approx(exact["score"], abs=0.05)


# --- generate --------------------------------------------------------------------------------------------------------


def test_generation_is_reproducible_with_a_seed(run: RunCommand, runs: dict[str, Path]) -> None:
    args = "generate", runs["lm"], "the cat", "--max-new-tokens", "12"
    streamed = run(*args, "--seed", "7")
    assert (streamed.code, streamed.err) == (0, "")
    (result,) = run("--json", *args, "--seed", "7").objects
    assert result["text"].rstrip("\n") + "\n" == streamed.out.rstrip("\n") + "\n"
    assert result.keys() == {"prompt", "text", "finish_reason", "logprob", "tokens", "seed"}
    samples = {run("--json", *args).objects[0]["text"] for _ in range(6)}
    assert len(samples) > 1  # without --seed, the seed is random


def test_generation_with_int8_weights(run: RunCommand, tmp_path: Path) -> None:
    trained = train_causal_lm(causal_lm_config(tmp_path, no_ngrams=True))  # n-grams are not quantized
    args = "--json", "generate", trained.run_dir, "the cat", "--max-new-tokens", "6", "--temperature", "0"
    (quantized,), (exact,) = run(*args, "--int8").objects, run(*args).objects
    assert quantized.keys() == exact.keys()
    assert quantized["logprob"] != exact["logprob"]
    assert quantized["logprob"] == pytest.approx(exact["logprob"], abs=0.5)


def test_prompts_of_a_file_and_of_stdin_give_the_same_samples(
    run: RunCommand, runs: dict[str, Path], tmp_path: Path
) -> None:
    prompts = ["the cat", "", "my king sees the moon", "t"]
    (tmp_path / "prompts.txt").write_text("\n".join(prompts) + "\n")
    args = "--json", "generate", runs["lm"], "--seed", "3", "--max-new-tokens", "8"
    together = run(*args, "--file", "prompts.txt").objects
    assert [one["prompt"] for one in together] == prompts
    assert run(*args, stdin="\n".join(prompts)).objects == together
    assert run(*args, prompts[0]).objects == together[:1]


def test_samples_of_one_prompt_differ_and_are_separated_by_an_empty_line(
    run: RunCommand, runs: dict[str, Path]
) -> None:
    args = "generate", runs["lm"], "the", "--num-samples", "3", "--seed", "1", "--max-new-tokens", "20"
    texts = [one["text"] for one in run("--json", *args).objects]
    assert len(set(texts)) == 3
    out = run(*args).out
    assert out == "\n".join(text if text.endswith("\n") else text + "\n" for text in texts)


def test_a_stop_string_ends_generation_and_is_not_printed(run: RunCommand, runs: dict[str, Path]) -> None:
    args = "--json", "generate", runs["lm"], "the cat", "--seed", "2", "--max-new-tokens", "40"
    (whole,) = run(*args).objects
    stop = whole["text"][5]
    (stopped,) = run(*args, "--stop", stop.replace("\n", "\\n")).objects
    assert stopped["text"] == whole["text"][: whole["text"].index(stop)] and stopped["finish_reason"] == "stop"


def test_logprobs_are_printed_for_each_token(run: RunCommand, runs: dict[str, Path]) -> None:
    args = "generate", runs["lm"], "the cat", "--logprobs", "--temperature", "0", "--max-new-tokens", "4"
    (result,) = run("--json", *args).objects
    tokens = result["logprobs"]
    assert "".join(token["text"] for token in tokens) == result["text"]
    assert {token["rank"] for token in tokens} == {1} and result["seed"] is None
    total = sum(token["logprob"] for token in tokens)
    assert result["finish_reason"] != "length" or math.isclose(total, result["logprob"], abs_tol=1e-3)
    rows = [line.split("\t") for line in run(*args).lines]
    assert [json.loads(text) for *_, text in rows] == [token["text"] for token in tokens]


def test_an_empty_prompt_generates_from_scratch_and_whole_file_reads_stdin_as_one_prompt(
    run: RunCommand, runs: dict[str, Path]
) -> None:
    args = "--json", "generate", runs["lm"], "--temperature", "0", "--max-new-tokens", "5"
    assert [one["prompt"] for one in run(*args).objects] == [""]
    assert [one["prompt"] for one in run(*args, "--whole-file", stdin="the\ncat\n").objects] == ["the\ncat"]


def test_a_prompt_that_exceeds_the_context_is_shortened_or_an_error(run: RunCommand, runs: dict[str, Path]) -> None:
    args, text = ("--json", "generate", runs["lm"], "--max-new-tokens", "300"), "the\n" + "the cat " * 90 + "\n"
    completed = run(*args, stdin=text)
    assert completed.code == 0 and "tokens does not fit into the context of" in completed.err
    assert all(one["finish_reason"] == "eos" or one["tokens"] == 300 for one in completed.objects)
    completed = run(*args, "--no-context-shift", stdin="the\n")
    assert completed.code == 65 and "stdin:1: 300 new tokens after a prompt of 4" in completed.err
    assert "help: --max-new-tokens" in completed.err


# --- classify --------------------------------------------------------------------------------------------------------


def test_lines_and_columns_are_classified_alike(run: RunCommand, runs: dict[str, Path], tmp_path: Path) -> None:
    texts = ["film 1 was lovely", "film 2 was dull, long", "film 3 was fine"]
    (tmp_path / "new.csv").write_text("id,review\n" + "".join(f'{n},"{text}"\n' for n, text in enumerate(texts)))
    (tmp_path / "new.jsonl").write_text("".join(json.dumps({"review": text}) + "\n" for text in texts))
    completed = run("classify", runs["classify"], *texts)
    for line in completed.lines:
        label, probability = line.split("\t")
        assert label in ("bad", "good") and 0.5 <= float(probability) <= 1
    for file in ("new.csv", "new.jsonl"):
        result = run("classify", runs["classify"], "--file", file, "--text", "review")
        assert result == completed
    detected = run("classify", runs["classify"], "--file", "new.csv")
    assert detected.out == completed.out and "'review'; --text selects another" in detected.err
    assert run("-q", "classify", runs["classify"], "--file", "new.csv").err == ""


def test_all_class_probabilities_sum_to_one(run: RunCommand, runs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("one,two,id\nfilm 1 was,lovely,1\n")
    args = "--json", "classify", runs["classify"], "--file", "pairs.csv", "--text", "one", "--all"
    (alone,), (paired,) = run(*args).objects, run(*args, "--text-pair", "two").objects
    assert sum(alone["classes"].values()) == pytest.approx(1, abs=1e-4)
    assert alone["label"] == max(alone["classes"], key=alone["classes"].get)
    assert paired["text_pair"] == "lovely" and paired["classes"] != alone["classes"]


def test_an_empty_text_has_no_class_but_keeps_its_line(run: RunCommand, runs: dict[str, Path]) -> None:
    completed = run("classify", runs["classify"], stdin="\nfilm 1\n\n")
    assert [bool(line) for line in completed.lines] == [False, True, False]


# --- embed -----------------------------------------------------------------------------------------------------------


def test_embeddings_are_equal_in_every_file_format(run: RunCommand, runs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("the cat\nmy king sees bread\n")
    args = "embed", runs["mlm"], "--file", "texts.txt"
    objects = run(*args).objects
    assert [one["text"] for one in objects] == ["the cat", "my king sees bread"]
    printed = torch.tensor([one["embedding"] for one in objects])
    assert run(*args, "--to", "v.npy").out == "v.npy\n"
    assert run("--json", *args, "--to", "v.parquet").objects[0] == {"path": "v.parquet", "embeddings": 2, "dim": 32}
    run(*args, "--to", "v.jsonl")
    table = pq.read_table(tmp_path / "v.parquet")
    embeddings = torch.tensor(table["embedding"].to_pylist())
    torch.testing.assert_close(embeddings, printed)
    raw = (tmp_path / "v.npy").read_bytes()
    assert raw.startswith(b"\x93NUMPY\x01\x00") and b"'shape': (2, 32)" in raw[:128]
    torch.testing.assert_close(torch.frombuffer(bytearray(raw[128:]), dtype=torch.float32).view(2, 32), embeddings)
    assert [json.loads(line) for line in (tmp_path / "v.jsonl").read_text().splitlines()] == objects
    again = run(*args, "--to", "v.npy")
    assert again.code == 74 and "v.npy already exists" in again.err


def test_embeddings_can_be_normalized(run: RunCommand, runs: dict[str, Path]) -> None:
    (raw,) = run("embed", runs["classify"], "film").objects
    (unit,) = run("embed", runs["classify"], "film", "--normalize").objects
    (cls,) = run("embed", runs["classify"], "film", "--pooling", "cls").objects
    norm = math.hypot(*raw["embedding"])
    assert math.hypot(*unit["embedding"]) == pytest.approx(1, abs=1e-5)
    assert [number / norm for number in raw["embedding"]] == pytest.approx(unit["embedding"], abs=1e-5)
    assert cls["embedding"] != raw["embedding"]


def test_word_vectors_equal_those_in_the_run_directory(run: RunCommand, runs: dict[str, Path]) -> None:
    rows = (runs["word2vec"] / "vectors.txt").read_text(encoding="utf-8").splitlines()[1:]
    written = {row.split()[0]: [float(number) for number in row.split()[1:]] for row in rows}
    cat, both = run("embed", runs["word2vec"], "cat", "cat sees").objects
    assert cat["embedding"] == pytest.approx(written["cat"], abs=1e-5)
    mean = [(one + other) / 2 for one, other in zip(written["cat"], written["sees"], strict=True)]
    assert both["embedding"] == pytest.approx(mean, abs=1e-5)
    unknown = run("embed", runs["word2vec"], stdin="cat\nzebra\n")
    assert unknown.code == 65 and "stdin:2: there is no vector for 'zebra'" in unknown.err


def test_an_error_leaves_no_partial_file(run: RunCommand, runs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes(b"cat\nsees\n\xff\n")
    for name in ("v.npy", "v.parquet", "v.jsonl"):
        completed = run("embed", runs["word2vec"], "--file", "bad.txt", "--to", name)
        assert completed.code == 65 and "bad.txt:3:1: the byte 0xff is not UTF-8" in completed.err
    assert [path.name for path in tmp_path.iterdir()] == ["bad.txt"]
    assert "can be written as .npy, .parquet, .jsonl" in run("embed", runs["word2vec"], "cat", "--to", "v.h5").err
    (tmp_path / "file").write_text("")
    assert run("embed", runs["word2vec"], "cat", "--to", "file/v.npy").code == 74


# --- errors ----------------------------------------------------------------------------------------------------------

OTHER_TASKS = {
    "translate": ("classify", "cannot translate; its task is classify. Try: softlook classify"),
    "classify": ("translate", "cannot classify; its task is translate. Try: softlook translate"),
    "generate": ("word2vec", "cannot generate; its task is embed. Try: softlook embed"),
    "embed": ("lm", "cannot embed; its task is generate. Try: softlook generate"),
}


@pytest.mark.parametrize("subcommand", OTHER_TASKS)
def test_a_run_of_another_task_names_the_right_command(subcommand: str, run: RunCommand, runs: dict[str, Path]) -> None:
    task, message = OTHER_TASKS[subcommand]
    completed = run(subcommand, runs[task], "a text")
    assert completed.code == 65 and f"{runs[task]} {message} {runs[task]}" in completed.err
    assert completed.out == ""


def test_an_unknown_run_lists_the_available_ones(run: RunCommand, tmp_path: Path) -> None:
    completed = run("--json", "translate", "nowhere", "a text")
    assert completed.code == 65
    assert "'dates' is a model" in completed.objects[0]["error"]["message"] and "softlook runs" in completed.err
    (tmp_path / "empty").mkdir()
    assert "empty is neither a run directory nor a model" in run("translate", "empty", "a").err
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    assert "`softlook import a.gguf`" in run("generate", "a.gguf").err


def test_lines_before_an_invalid_one_are_translated_and_the_invalid_one_is_located(
    run: RunCommand, tmp_path: Path
) -> None:
    content = b"3 mars 2022\n" + b"caf\xe9\n" + b"4 mai 1998\n"
    piped = run(*GREEDY, stdin=content)
    assert (piped.code, piped.out) == (65, "2022-03-03\n")
    assert "stdin:2:4: the byte 0xe9" in piped.err and "iconv" in piped.err
    (tmp_path / "bad.txt").write_bytes(content)
    from_file = run(*GREEDY, "--file", "bad.txt")
    assert (from_file.code, from_file.out) == (65, "2022-03-03\n") and "bad.txt:2:4: " in from_file.err
    assert "nofile.txt: there is no such file" in run("translate", "dates", "--file", "nofile.txt").err
    assert "texts and files cannot be combined" in run("translate", "dates", "a", "--file", "bad.txt").err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("translate", "dates", "a", "--num-beams", "0"), "expected num_beams from 1 to 256, got 0"),
        (("translate", "dates", "a", "--n-best", "9", "--num-beams", "2"), "got 2: --num-beams 9"),
        (("generate", "lm", "a", "--temperature", "-1"), "expected a temperature of at least 0, got -1.0"),
        (("generate", "lm", "a", "--top-p", "2"), "top_p must be in [0, 1], got 2.0"),
        (("generate", "lm", "a", "--num-samples", "0"), "expected num_samples of at least 1, got 0"),
        (("generate", "lm", "a", "--json-schema", "schema.json"), "schema.json: this is not valid JSON"),
        (("classify", "classify", "--text", "review"), "column names require a file: --file"),
    ],
    ids=["beams", "n-best", "temperature", "top-p", "samples", "schema", "column"],
)
def test_an_invalid_option_is_rejected(
    args: tuple[str, ...], message: str, run: RunCommand, runs: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "schema.json").write_text("{")
    completed = run(*(runs.get(word, word) if index == 1 else word for index, word in enumerate(args)))
    assert completed.code == 65 and message in completed.err


# --- pipes -----------------------------------------------------------------------------------------------------------

COMMAND = [sys.executable, "-m", "softlook", *GREEDY, "--device", "cpu"]
ENVIRON = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}


def test_each_line_of_a_pipe_is_translated_before_the_next_arrives() -> None:
    with subprocess.Popen(COMMAND, stdin=-1, stdout=-1, stderr=-1, env=ENVIRON, text=True, encoding="utf-8") as child:
        assert child.stdin is not None and child.stdout is not None
        for date, iso in DATES.items():
            child.stdin.write(date + "\n")
            child.stdin.flush()
            assert child.stdout.readline() == iso + "\n"
        child.stdin.close()
        assert child.stdout.read() == ""
        assert child.wait(60) == 0


@pytest.mark.skipif(os.name == "nt", reason="no such pipes on Windows")
def test_a_closed_pipe_ends_the_command_silently(tmp_path: Path) -> None:
    (tmp_path / "many.txt").write_text("3 mars 2022\n" * 8_000, encoding="utf-8")
    with subprocess.Popen([*COMMAND, "--file", tmp_path / "many.txt"], stdout=-1, stderr=-1, env=ENVIRON) as child:
        assert child.stdout is not None and child.stderr is not None
        assert child.stdout.readline() == b"2022-03-03\n"
        child.stdout.close()
        assert child.stderr.read() == b""
        assert child.wait(120) == 141
