"""A batch job predicts every row of a folder as the functions for single texts do, and can be resumed."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from softlook.base.errors import ConfigError, DataError, DiskError
from softlook.recipes.batch import BatchParams, parts, predict_folder, worker
from softlook.recipes.inference import GenerationParams, classify, embed, generate, load_pipeline, translate
from softlook.recipes.tabular.predict import load_predictor
from softlook.recipes.tabular.run import train_table
from tests.recipes.small import tabular_config
from tests.recipes.trained_runs import train_runs

TEXTS = ["film 1 was fine", "film 2 was awful", "film 30 was lovely", "film 4 was dull", "film 5 was fine", "film six"]
ROW_GROUP_ROWS = 2


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    run_dirs = train_runs(folder, "classify", "mlm", "lm", "word2vec")
    (folder / "table").mkdir()
    return {**run_dirs, "table": train_table(tabular_config(folder / "table")).run_dir}


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part for every row group."""
    monkeypatch.setattr(parts, "MIN_PART_ROWS", 1)


def write_texts(folder: Path, *files: Sequence[str | None]) -> Path:
    """A file for each list of texts, in folders of their own, as a partitioned data set has them."""
    first = 0
    for number, texts in enumerate(files):
        path = folder / f"day={number}" / "rows.parquet"
        path.parent.mkdir(parents=True)
        table = pa.table({"id": range(first, first + len(texts)), "text": pa.array(texts, pa.string())})
        pq.write_table(table, path, row_group_size=ROW_GROUP_ROWS)
        first += len(texts)
    return folder


def read(folder: Path) -> list[dict[str, Any]]:
    """The rows of the output, in the order of the input."""
    return [row for path in sorted(folder.rglob("*.parquet")) for row in pq.ParquetFile(path).read().to_pylist()]


def chunks(texts: list[str], rows: int = ROW_GROUP_ROWS) -> list[list[str]]:
    return [texts[at : at + rows] for at in range(0, len(texts), rows)]


def test_classes_are_those_of_classify(runs: dict[str, Path], tmp_path: Path) -> None:
    params = BatchParams(keep=("id",), probabilities=True)
    result = predict_folder(runs["classify"], write_texts(tmp_path / "in", TEXTS, TEXTS[:3]), tmp_path / "out", params)
    assert (result.rows, result.errors, result.parts, result.computed_parts) == (9, 0, 5, 5)
    pipeline = load_pipeline(runs["classify"], device="cpu")
    expected = [one for texts in (*chunks(TEXTS), *chunks(TEXTS[:3])) for one in classify(pipeline, texts)]
    for number, (row, prediction) in enumerate(zip(read(tmp_path / "out"), expected, strict=True)):
        probabilities = {f"P({label})": probability for label, probability in prediction.classes.items()}
        assert row == {
            "id": number,
            "label": prediction.label,
            "probability": prediction.probability,
            **probabilities,
            "error": None,
        }


@pytest.mark.parametrize("run", ["mlm", "word2vec"])
def test_embeddings_are_those_of_embed(run: str, runs: dict[str, Path], tmp_path: Path) -> None:
    texts = ["the cat eats bread", "the dog", "my king sees the moon", "fish"]
    predict_folder(runs[run], write_texts(tmp_path / "in", texts), tmp_path / "out", BatchParams(normalize=True))
    pipeline = load_pipeline(runs[run], device="cpu")
    expected = [vector for part in chunks(texts) for vector in embed(pipeline, part, normalize=True).tolist()]
    assert [row["embedding"] for row in read(tmp_path / "out")] == expected


def test_translations_are_those_of_translate(tmp_path: Path) -> None:
    dates = ["jeudi 3 mars 2022", "", "le 1er mai 1998"]
    predict_folder("dates", write_texts(tmp_path / "in", dates), tmp_path / "out", BatchParams(num_beams=2))
    pipeline = load_pipeline("dates", device="cpu")
    expected = [one for part in chunks(dates) for one in translate(pipeline, part, num_beams=2)]
    rows = read(tmp_path / "out")
    assert [row["translation"] for row in rows] == [one.text for one in expected] == ["2022-03-03", "", "1998-05-01"]
    assert [row["score"] for row in rows] == [one.candidates[0].score if one.candidates else None for one in expected]


def test_random_texts_depend_on_the_position_of_a_row_only(runs: dict[str, Path], tmp_path: Path) -> None:
    prompts = ["the cat", "the dog", "my king", "the cat", "the cat"]
    params = BatchParams(max_new_tokens=8, temperature=1.0, seed=3)
    predict_folder(runs["lm"], write_texts(tmp_path / "in", prompts[:3], prompts[3:]), tmp_path / "out", params)
    sampling = GenerationParams(max_new_tokens=8, temperature=1.0, seed=3)
    expected = generate(load_pipeline(runs["lm"], device="cpu"), prompts, sampling)
    texts = [row["generated_text"] for row in read(tmp_path / "out")]
    assert texts == [one.text for one in expected]
    assert len({texts[0], texts[3], texts[4]}) > 1


def test_table_predictions_are_those_of_predict(runs: dict[str, Path], tmp_path: Path) -> None:
    rows = pa.table({"age": [20, 60, None, 33], "city": ["Oslo", "Bern", "Rome", None], "grade": [1, 2, 3, 1]})
    (tmp_path / "in").mkdir()
    pq.write_table(rows, tmp_path / "in" / "people.parquet", row_group_size=ROW_GROUP_ROWS)
    params = BatchParams(keep=("city",), probabilities=True)
    predict_folder(runs["table"], tmp_path / "in", tmp_path / "out", params, device="cpu")
    predictor = load_predictor(runs["table"], device="cpu")
    halves = [predictor.predict(rows.slice(at, ROW_GROUP_ROWS)) for at in (0, 2)]
    found = read(tmp_path / "out")
    assert [row["buys"] for row in found] == [value for half in halves for value in half.values]
    assert [row["P(yes)"] for row in found] == [row[1] for half in halves for row in half.raw.tolist()]
    assert [row["city"] for row in found] == ["Oslo", "Bern", "Rome", None]


def test_a_bad_row_is_reported_and_the_others_are_predicted(runs: dict[str, Path], tmp_path: Path) -> None:
    texts = ["the cat", None, "zzz", "the dog", "qqq", "bread"]
    source = write_texts(tmp_path / "in", texts)
    path = source / "day=0" / "rows.parquet"
    pq.write_table(pq.ParquetFile(path).read(), path)  # one part
    result = predict_folder(runs["word2vec"], source, tmp_path / "out", BatchParams(keep=("id",)))
    assert (result.rows, result.errors) == (6, 3)
    rows = read(tmp_path / "out")
    assert [row["error"] for row in rows] == [
        None,
        "there is no text",
        "there is no vector for 'zzz'",
        None,
        "there is no vector for 'qqq'",
        None,
    ]
    good = embed(load_pipeline(runs["word2vec"], device="cpu"), ["the cat", "the dog", "bread"]).tolist()
    assert [row["embedding"] for row in rows if row["error"] is None] == good
    assert [row["embedding"] for row in rows if row["error"]] == [None] * 3


def test_a_text_that_is_not_utf_8_is_a_bad_row(runs: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    column = pa.array([b"film 1 was fine", b"\xff\xfe", b" "], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"review": column}), folder / "a.parquet")
    result = predict_folder(runs["classify"], folder, tmp_path / "out")
    errors = [row["error"] for row in read(tmp_path / "out")]
    assert errors[0] is None
    assert str(errors[1]).startswith("the text is not valid UTF-8")
    assert errors[2] == "there is no text"
    assert result.errors == 2


def test_an_invalid_cell_of_a_table_is_a_bad_row(runs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows = pa.table({"age": [20.0, float("inf"), 33.0], "city": ["Oslo"] * 3, "grade": [1, 2, 3]})
    pq.write_table(rows, tmp_path / "in" / "people.parquet")
    predict_folder(runs["table"], tmp_path / "in", tmp_path / "out")
    first, second, third = read(tmp_path / "out")
    assert first["error"] is third["error"] is None
    assert second["buys"] is None
    assert "infinity" in second["error"]


def test_a_stopped_job_computes_only_what_is_missing(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_texts(tmp_path / "in", TEXTS, TEXTS)
    predict_folder(runs["classify"], source, tmp_path / "whole")

    compute, computed = worker.PartWorker._compute, list[str]()

    def stop_at_third(self: worker.PartWorker, part: parts.InputPart) -> worker.PartResult:
        if len(computed) == 2:
            raise KeyboardInterrupt
        computed.append(part.output)
        return compute(self, part)

    monkeypatch.setattr(worker.PartWorker, "_compute", stop_at_third)
    with pytest.raises(KeyboardInterrupt):
        predict_folder(runs["classify"], source, tmp_path / "out")
    assert not (tmp_path / "out" / "_SUCCESS").exists()
    monkeypatch.setattr(worker.PartWorker, "_compute", compute)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.parquet")}
    assert len(before) == 2
    result = predict_folder(runs["classify"], source, tmp_path / "out")
    assert (result.parts, result.computed_parts, result.rows) == (6, 4, 12)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert (tmp_path / "out" / "_SUCCESS").exists()
    for path in (tmp_path / "whole").rglob("*.parquet"):
        assert (tmp_path / "out" / path.relative_to(tmp_path / "whole")).read_bytes() == path.read_bytes()


def test_a_finished_job_counts_the_bad_rows_of_earlier_parts(runs: dict[str, Path], tmp_path: Path) -> None:
    source = write_texts(tmp_path / "in", ["film 1", None], [None, None])
    predict_folder(runs["classify"], source, tmp_path / "out")
    result = predict_folder(runs["classify"], source, tmp_path / "out")
    assert (result.computed_parts, result.rows, result.errors) == (0, 4, 3)


def test_a_writer_that_fails_leaves_no_part(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(worker, "fsync", fail)
    with pytest.raises(DiskError, match="No space left"):
        predict_folder(runs["classify"], write_texts(tmp_path / "in", TEXTS), tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").rglob("*") if path.is_file()] == ["_softlook.json"]


def test_another_model_parameter_or_input_is_refused(runs: dict[str, Path], tmp_path: Path) -> None:
    source, out = write_texts(tmp_path / "in", TEXTS), tmp_path / "out"
    predict_folder(runs["mlm"], source, out)
    with pytest.raises(ConfigError, match=r"holds parts of another job: --normalize has changed"):
        predict_folder(runs["mlm"], source, out, BatchParams(normalize=True))
    with pytest.raises(ConfigError, match=r"another job: the model has changed"):
        predict_folder(runs["word2vec"], source, out)
    path = source / "day=0" / "rows.parquet"
    status = path.stat()
    pq.write_table(pa.table({"id": range(6), "text": [text.upper() for text in TEXTS]}), path, row_group_size=2)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(ConfigError, match=r"another job: day=0/rows.parquet has changed. Undo"):
        predict_folder(runs["mlm"], source, out)


def test_an_unreadable_part_does_not_stop_the_others(runs: dict[str, Path], tmp_path: Path) -> None:
    source, out = write_texts(tmp_path / "in", TEXTS[:2], TEXTS[2:4]), tmp_path / "out"
    path = source / "day=0" / "rows.parquet"
    content = bytearray(path.read_bytes())
    footer = int.from_bytes(content[-8:-4], "little") + 8
    content[4:-footer] = bytes(len(content) - footer - 4)  # the footer is intact
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"1 of 2 parts could not be computed. The first: .*is damaged"):
        predict_folder(runs["classify"], source, out)
    assert [row["label"] is not None for row in read(out)] == [True, True]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (BatchParams(num_beams=4), "--num-beams has no effect: the task of this model is classify"),
        (BatchParams(text="txt"), "there is no column 'txt'. Did you mean 'text'?"),
        (BatchParams(text="id"), "column 'id': expected text, got int64"),
        (BatchParams(keep=("idd",)), "--keep: there is no column 'idd'. Did you mean 'id'?"),
        (BatchParams(keep=("label",)), "--keep: 'label' is the name of an output column"),
    ],
)
def test_a_wrong_parameter_is_an_error_before_anything_is_written(
    params: BatchParams, message: str, runs: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises((ConfigError, DataError)) as raised:
        predict_folder(runs["classify"], write_texts(tmp_path / "in", TEXTS), tmp_path / "out", params)
    assert message in str(raised.value)
    assert not (tmp_path / "out").exists()


def test_the_output_lies_neither_in_the_input_nor_in_a_used_folder(runs: dict[str, Path], tmp_path: Path) -> None:
    source = write_texts(tmp_path / "in", TEXTS)
    with pytest.raises(ConfigError, match="lies in the input folder"):
        predict_folder(runs["classify"], source, source / "out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    with pytest.raises(ConfigError, match="is not an empty folder"):
        predict_folder(runs["classify"], source, tmp_path / "mine")


def test_workers_are_at_least_one_and_have_the_gpus(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected at least 1 worker, got 0"):
        predict_folder("dates", tmp_path, tmp_path / "out", workers=0)
    with pytest.raises(ConfigError, match="--gpus-per-worker is for actors of Ray: add --workers"):
        predict_folder("dates", tmp_path, tmp_path / "out", gpus_per_worker=1)


def test_an_empty_file_has_an_empty_output(runs: dict[str, Path], tmp_path: Path) -> None:
    source = write_texts(tmp_path / "in", [], TEXTS[:1])
    result = predict_folder(runs["classify"], source, tmp_path / "out")
    assert (result.rows, result.parts) == (1, 2)
    assert pq.read_metadata(tmp_path / "out" / "day=0" / "rows-00000.parquet").num_rows == 0


def test_job_file_names_model_parameters_and_input(runs: dict[str, Path], tmp_path: Path) -> None:
    predict_folder(runs["classify"], write_texts(tmp_path / "in", TEXTS), tmp_path / "out")
    content = json.loads((tmp_path / "out" / "_softlook.json").read_text())
    assert sorted(content) == ["files", "model", "params", "softlook"]
    assert list(content["files"]) == ["day=0/rows.parquet"]
