"""`softlook generate`, `translate`, `classify` and `embed`: ask a trained model."""

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from softlook.cli.talk import Result

Run = Annotated[str, Parameter(help="the folder of a run, a checkpoint, or a model of Hugging Face's")]
Texts = Annotated[str, Parameter(help="texts, each in quotes; where there are none, the lines of stdin")]
Files = Annotated[tuple[Path, ...], Parameter(help="files to take the texts from, also .gz and .zst")]
All = Parameter(name="*")
Device = Annotated[str, Parameter(help="auto: cuda, then mps, then cpu")]
Int8 = Annotated[bool, Parameter(help="weights of one byte: faster on a CPU, less exact")]


@dataclass(frozen=True)
class How:
    """How words are chosen."""

    longest: Annotated[int | None, Parameter(help="new tokens at most; 200, or as many as there is room for")] = None
    temperature: Annotated[float, Parameter(help="0 takes the likeliest word; 1 draws by the model's own chances")] = (
        0.8
    )
    top_p: Annotated[float | None, Parameter(help="draw among the best that have this share of the chance")] = None
    top_k: Annotated[int | None, Parameter(help="draw among so many of the best")] = None
    min_p: Annotated[float | None, Parameter(help="draw among those this many times as likely as the best")] = None
    repetition: Annotated[float, Parameter(help="above 1, what was said already is said less")] = 1.0
    seed: Annotated[int | None, Parameter(help="the same seed, the same answers")] = None


HOW = How()


def generate(
    run: Run,
    /,
    *prompts: Texts,
    file: Files = (),
    whole: Annotated[bool, Parameter(help="all of stdin, or of each file, is one prompt")] = False,
    how: Annotated[How, All] = HOW,
    count: Annotated[int, Parameter(help="answers to each prompt")] = 1,
    stop: Annotated[tuple[str, ...], Parameter(help="texts that end an answer; \\n is a line's end")] = (),
    json_schema: Annotated[Path | None, Parameter(help="a file with a JSON schema that answers keep to")] = None,
    log_probabilities: Annotated[bool, Parameter(help="each token with how likely it was, and its rank")] = False,
    device: Device = "auto",
    int8: Int8 = False,
) -> None:
    """Go on with a text."""
    from softlook.cli.asking import asked, whole_texts  # noqa: PLC0415  (torch is loaded only now)
    from softlook.cli.telling import Tale, schema_in  # noqa: PLC0415
    from softlook.recipes.answering import Manner, opened  # noqa: PLC0415

    manner = Manner(
        **asdict(how),
        stop=tuple(text.replace("\\n", "\n").replace("\\t", "\t") for text in stop),
        schema=schema_in(json_schema),
    )
    model = opened(run, device=device, int8=int8).asked_to("generate")
    none = not prompts and not file and sys.stdin is not None and sys.stdin.isatty()
    blocks = whole_texts(prompts, file) if whole else asked(("",) if none else prompts, file)
    Tale(model, manner, count, log_probabilities).tell(blocks)


def translate(
    run: Run,
    /,
    *texts: Texts,
    file: Files = (),
    beams: Annotated[int | None, Parameter(help="beginnings that are kept at once; 1 is the fastest")] = None,
    penalty: Annotated[float | None, Parameter(help="above 0 favours longer answers")] = None,
    n_best: Annotated[int, Parameter(help="so many for each line: its number, a score, a translation")] = 1,
    alignments: Annotated[bool, Parameter(help="add which word comes from which: source-target, from 0")] = False,
    pieces: Annotated[bool, Parameter(help="the same for the model's own tokens instead of words")] = False,
    score: Annotated[Path | None, Parameter(help="a file of right translations: BLEU and chrF by sacreBLEU")] = None,
    source_language: Annotated[
        str | None, Parameter(help="of a model of many: its token, as en_XX or eng_Latn")
    ] = None,
    target_language: Annotated[
        str | None, Parameter(help="of a model of many: its token, as fr_XX or fra_Latn")
    ] = None,
    device: Device = "auto",
    int8: Int8 = False,
) -> None:
    """Say texts in other words."""
    from softlook.cli.asking import asked  # noqa: PLC0415
    from softlook.cli.telling import Rendering  # noqa: PLC0415
    from softlook.recipes.answering import between, opened  # noqa: PLC0415

    model = opened(run, device=device, int8=int8).asked_to("translate")
    model = between(model, source_language, target_language)
    Rendering(model, beams, penalty, n_best, alignments, pieces, score).tell(asked(texts, file))


def classify(
    run: Run,
    /,
    *texts: Texts,
    file: Files = (),
    text: Annotated[str | None, Parameter(help="the column of the texts, in a .csv, .tsv, .jsonl or .parquet")] = None,
    text_pair: Annotated[str | None, Parameter(help="the column of second texts, where pairs are classified")] = None,
    all: Annotated[bool, Parameter(help="all classes, the likeliest first")] = False,
    device: Device = "auto",
) -> None:
    """Say which class texts belong to."""
    from softlook.cli.asking import Columns, asked  # noqa: PLC0415
    from softlook.cli.judging import judge  # noqa: PLC0415
    from softlook.recipes.answering import opened  # noqa: PLC0415

    model = opened(run, device=device).asked_to("classify")
    judge(model, asked(texts, file, Columns(text, text_pair)), all_classes=all)


def embed(
    run: Run,
    /,
    *texts: Texts,
    file: Files = (),
    text: Annotated[str | None, Parameter(help="the column of the texts, in a .csv, .tsv, .jsonl or .parquet")] = None,
    to: Annotated[Path | None, Parameter(help="a new .npy, .parquet or .jsonl; stdout where not told")] = None,
    pooling: Annotated[Literal["first", "mean"] | None, Parameter(help="how tokens become one vector")] = None,
    unit: Annotated[bool, Parameter(help="make each vector one long; sentence encoders may do so anyway")] = False,
    prompt: Annotated[str | None, Parameter(help="name of a sentence encoder's prompt, to put before texts")] = None,
    device: Device = "auto",
) -> Result | None:
    """Give texts vectors."""
    from softlook.cli.asking import Columns, asked  # noqa: PLC0415
    from softlook.cli.judging import Placing  # noqa: PLC0415
    from softlook.recipes.answering import opened  # noqa: PLC0415

    placing = Placing(opened(run, device=device).asked_to("embed"), pooling, unit, prompt)
    blocks = asked(texts, file, Columns(text))
    return placing.tell(blocks) if to is None else placing.write(blocks, to)
