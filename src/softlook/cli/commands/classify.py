"""`softlook classify`: classify texts."""

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from softlook.cli.console import OutputStream, counter
from softlook.cli.options import DeviceOption, FileOption, ModelArg, TextArgs, TextOption

if TYPE_CHECKING:
    from softlook.recipes.inference.encoding import ClassPrediction

SCORE_DIGITS = 4


def classify(
    model: ModelArg,
    /,
    *texts: TextArgs,
    file: FileOption = (),
    text: TextOption = None,
    text_pair: Annotated[str | None, Parameter(help="column of the second texts, to classify pairs")] = None,
    all: Annotated[bool, Parameter(help="print all classes, most likely first")] = False,
    device: DeviceOption = "auto",
) -> None:
    """Classify texts."""
    from softlook.cli.inputs import TextColumns, read_texts  # noqa: PLC0415  (imports torch)
    from softlook.recipes.inference.encoding import classify as classify_texts  # noqa: PLC0415
    from softlook.recipes.inference.pipeline import load_pipeline  # noqa: PLC0415

    pipeline, output = load_pipeline(model, device=device).require("classify"), OutputStream()
    score_name = "value" if pipeline.model.config.problem == "regression" else "probability"
    batches = read_texts(texts, file, TextColumns(text, text_pair))
    with counter(output) as count:
        for batch in batches:
            predictions = iter(classify_texts(pipeline, [one for one in batch if one.text.strip()]))
            for one in batch:  # an empty text has no class
                prediction = next(predictions) if one.text.strip() else None
                if output.json:
                    output.write_object(_to_object(prediction, one.text, score_name, all_classes=all))
                else:
                    output.write_line(*_to_cells(prediction, all_classes=all))
            count.add(len(batch))


def _to_cells(prediction: "ClassPrediction | None", *, all_classes: bool) -> list[str]:
    if prediction is None:
        return []
    classes = prediction.classes if all_classes else {prediction.label: prediction.probability}
    return [cell for label, score in classes.items() for cell in (label, format_score(score))]


def _to_object(
    prediction: "ClassPrediction | None", text: str, score_name: str, *, all_classes: bool
) -> dict[str, Any]:
    if prediction is None:
        return {"text": text, "label": None, score_name: None}
    pair = {} if prediction.pair is None else {"text_pair": prediction.pair}
    content = {"text": text, **pair, "label": prediction.label, score_name: _round(prediction.probability)}
    if all_classes:
        content["classes"] = {label: _round(score) for label, score in prediction.classes.items()}
    return content


def format_score(score: float) -> str:
    """
    >>> format_score(0.12345), format_score(0.0), format_score(-2.5), format_score(1.2345e-7)
    ('0.1235', '0.0000', '-2.5000', '1.235e-07')
    """
    is_plain = score == 0 or 1e-3 <= abs(score) < 1e6
    return f"{score:.{SCORE_DIGITS}f}" if is_plain else f"{score:.{SCORE_DIGITS}g}"


def _round(score: float) -> float:
    """Six significant digits: rerankers distinguish texts by very small probabilities too."""
    return float(f"{score:.6g}")
