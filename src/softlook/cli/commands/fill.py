"""`softlook fill`: predictions for masked tokens."""

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from softlook.cli.commands.classify import format_score
from softlook.cli.console import OutputStream, counter
from softlook.cli.options import DeviceOption, FileOption, ModelArg, TextArgs, TextOption

if TYPE_CHECKING:
    from softlook.recipes.inference.fill import FilledText


def fill(
    model: ModelArg,
    /,
    *texts: TextArgs,
    file: FileOption = (),
    text: TextOption = None,
    top_k: Annotated[int, Parameter(help="number of predictions for each mask")] = 5,
    device: DeviceOption = "auto",
) -> None:
    """Predict masked tokens, written [MASK] or <mask>: token, probability and text for each prediction."""
    from softlook.cli.inputs import TextColumns, read_texts  # noqa: PLC0415  (imports torch)
    from softlook.recipes.inference.fill import fill_masks  # noqa: PLC0415
    from softlook.recipes.inference.pipeline import load_pipeline  # noqa: PLC0415

    pipeline, output = load_pipeline(model, device=device), OutputStream()
    fill_masks(pipeline, [], top_k=top_k)  # raises an error before stdin is read
    batches = read_texts(texts, file, TextColumns(text))
    with counter(output) as count:
        for batch in batches:
            filled = iter(fill_masks(pipeline, [one for one in batch if one.text.strip()], top_k=top_k))
            for one in batch:  # an empty text has no masks
                _write(output, next(filled) if one.text.strip() else None, one.text)
            count.add(len(batch))


def _write(output: OutputStream, filled: "FilledText | None", text: str) -> None:
    if output.json:
        output.write_object({"text": text, "filled": text, "masks": []} if filled is None else _to_object(filled))
    elif filled is None:
        output.write_line()
    else:
        for predictions in filled.masks:
            for one in predictions:
                output.write_line(one.token, format_score(one.probability), one.text)


def _to_object(filled: "FilledText") -> dict[str, Any]:
    masks = [
        [{"token": one.token, "id": one.id, "probability": float(f"{one.probability:.6g}")} for one in predictions]
        for predictions in filled.masks
    ]
    return {"text": filled.text, "filled": filled.filled, "masks": masks}
