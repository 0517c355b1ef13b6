"""`softlook tag`: find the entities of texts."""

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from softlook.cli.commands.classify import format_score
from softlook.cli.console import OutputStream, counter
from softlook.cli.options import DeviceOption, FileOption, ModelArg, TextArgs, TextOption

if TYPE_CHECKING:
    from softlook.recipes.inference.tagging import TextEntities


def tag(
    model: ModelArg,
    /,
    *texts: TextArgs,
    file: FileOption = (),
    text: TextOption = None,
    is_split_into_words: Annotated[
        bool, Parameter(help="the texts have spaces between all words and punctuation marks")
    ] = False,
    device: DeviceOption = "auto",
) -> None:
    """Find the entities of texts: one per line, with label, probability, and first and last character offset."""
    from softlook.cli.inputs import TextColumns, read_texts  # noqa: PLC0415  (imports torch)
    from softlook.recipes.inference.pipeline import load_pipeline  # noqa: PLC0415
    from softlook.recipes.inference.tagging import tag as tag_texts  # noqa: PLC0415

    pipeline, output = load_pipeline(model, device=device).require("tag"), OutputStream()
    is_first = True
    with counter(output) as count:
        for batch in read_texts(texts, file, TextColumns(text)):
            for result in tag_texts(pipeline, batch, is_split_into_words=is_split_into_words):
                if output.json:
                    output.write_object(_to_object(result))
                else:
                    _write_lines(output, result, is_first=is_first)
                is_first = False
            count.add(len(batch))


def _write_lines(output: OutputStream, result: "TextEntities", *, is_first: bool) -> None:
    """The entities of a text; a blank line separates texts."""
    if not is_first:
        output.write_line()
    for entity in result.entities:
        score = format_score(entity.probability)
        output.write_line(entity.text, entity.label, score, str(entity.start), str(entity.end))


def _to_object(result: "TextEntities") -> dict[str, Any]:
    entities = [
        {
            "text": entity.text,
            "label": entity.label,
            "probability": float(f"{entity.probability:.6g}"),
            "start": entity.start,
            "end": entity.end,
        }
        for entity in result.entities
    ]
    return {"text": result.text, "entities": entities}
