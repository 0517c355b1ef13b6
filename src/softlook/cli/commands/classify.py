"""`softlook classify`: classify texts."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from softlook.cli.console import OutputStream, counter
from softlook.cli.options import DeviceOption, FileOption, ModelArg, TextArgs, TextOption

if TYPE_CHECKING:
    from softlook.cli.inputs import TextBatch
    from softlook.recipes.inference.encoding import ClassPrediction
    from softlook.recipes.inference.pipeline import Pipeline

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
    from softlook.recipes.inference.pipeline import load_pipeline  # noqa: PLC0415

    pipeline = load_pipeline(model, device=device).require("classify")
    Classifier(pipeline, all_classes=all).run(read_texts(texts, file, TextColumns(text, text_pair)))


@dataclass(frozen=True)
class Classifier:
    """Classifies and prints batches of texts."""

    pipeline: "Pipeline"
    all_classes: bool

    @property
    def score_name(self) -> str:
        """The JSON key of a score."""
        return "value" if self.pipeline.model.config.problem == "regression" else "probability"

    def run(self, batches: "Iterator[TextBatch]") -> None:
        """One line per text; empty for an empty text."""
        from softlook.recipes.inference.encoding import classify as classify_texts  # noqa: PLC0415

        output = OutputStream()
        with counter(output) as count:
            for batch in batches:
                predictions = iter(classify_texts(self.pipeline, [one for one in batch if one.text.strip()]))
                for one in batch:
                    self._print(output, next(predictions) if one.text.strip() else None, one.text)
                output.flush()
                count.add(len(batch))

    def _print(self, output: OutputStream, prediction: "ClassPrediction | None", text: str) -> None:
        if output.json:
            output.write_object(self._to_object(prediction, text))
        elif prediction is None:
            output.write_line("")
        else:
            best = [(prediction.label, prediction.probability)]
            classes = list(prediction.classes.items()) if self.all_classes else best
            output.write_line(*(cell for label, score in classes for cell in (label, format_score(score))))

    def _to_object(self, prediction: "ClassPrediction | None", text: str) -> dict[str, Any]:
        if prediction is None:
            return {"text": text, "label": None, self.score_name: None}
        pair = {} if prediction.pair is None else {"text_pair": prediction.pair}
        score = _round(prediction.probability)
        content = {"text": text, **pair, "label": prediction.label, self.score_name: score}
        if self.all_classes:
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
