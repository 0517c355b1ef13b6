"""`softlook classify`: classify texts, and images with a run of `softlook train images`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from cyclopts import Parameter

from softlook.base.errors import ConfigError
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
    attention: Annotated[
        Path | None, Parameter(help="of an image: draw the patches that the prediction attends to (.svg, .png, .html)")
    ] = None,
    device: DeviceOption = "auto",
) -> None:
    """Classify texts: the class of each, the labels with a probability above 0.5, or the number, as trained.

    With a model of `softlook train images`, or a ViT of Hugging Face, the arguments are images, or folders of images.
    """
    from softlook.recipes.run_dir.layout import is_image_model  # noqa: PLC0415  (imports torch)

    if is_image_model(Path(model)):
        classify_images(model, [*map(Path, texts), *file], ClassFormat(all), attention=attention, device=device)
        return
    if attention is not None:
        raise ConfigError(f"--attention is for images. For texts: softlook inspect {model} TEXT")
    from softlook.cli.inputs import TextColumns, read_texts  # noqa: PLC0415  (imports torch)
    from softlook.recipes.inference.encoding import classify as classify_texts  # noqa: PLC0415
    from softlook.recipes.inference.pipeline import load_pipeline  # noqa: PLC0415

    pipeline, output = load_pipeline(model, device=device).require("classify"), OutputStream()
    format = FORMATS.get(pipeline.model.config.problem, ClassFormat)(all)
    batches = read_texts(texts, file, TextColumns(text, text_pair))
    with counter(output) as count:
        for batch in batches:
            predictions = iter(classify_texts(pipeline, [one for one in batch if one.text.strip()]))
            for one in batch:  # an empty text has no class
                prediction = next(predictions) if one.text.strip() else None
                if output.json:
                    pair = {} if one.pair is None else {"text_pair": one.pair}
                    content = format.missing if prediction is None else format.to_object(prediction)
                    output.write_object({"text": one.text, **pair, **content})
                else:
                    output.write_line(*([] if prediction is None else format.to_cells(prediction)))
            count.add(len(batch))


def classify_images(
    run: str, paths: Sequence[Path], format: "ClassFormat", *, attention: Path | None = None, device: str = "auto"
) -> None:
    """Print the class of each image."""
    from softlook.recipes.images.files import find_images  # noqa: PLC0415  (Pillow, an extra)
    from softlook.recipes.images.predict import load_image_classifier  # noqa: PLC0415

    if not paths:
        raise ConfigError(f"no images given. Name a file or a folder: softlook classify {run} photo.png")
    images = find_images(paths)
    if attention is not None and len(images) != 1:
        raise ConfigError(f"--attention draws one image, got {len(images)}")
    classifier, output = load_image_classifier(run, device=device), OutputStream()
    with counter(output, "images") as count:
        for prediction in classifier.classify(images):
            if output.json:
                output.write_object({"image": prediction.text, **format.to_object(prediction)})
            else:
                output.write_line(*([prediction.text] if len(images) > 1 else []), *format.to_cells(prediction))
            count.add(1)
    if attention is not None:
        classifier.attention_figure(images[0]).save(attention)


class ClassFormat:
    """Output of a classifier: the class with its probability."""

    missing: ClassVar[dict[str, Any]] = {"label": None, "probability": None}

    def __init__(self, has_all: bool) -> None:
        self.has_all = has_all

    def shown(self, prediction: "ClassPrediction") -> dict[str, float]:
        """The labels to print, with their scores."""
        return prediction.classes if self.has_all else {name: prediction.classes[name] for name in prediction.labels}

    def to_cells(self, prediction: "ClassPrediction") -> list[str]:
        return [cell for label, score in self.shown(prediction).items() for cell in (label, format_score(score))]

    def to_object(self, prediction: "ClassPrediction") -> dict[str, Any]:
        content = {"label": prediction.label, "probability": _round(prediction.probability)}
        return content | ({"classes": _rounded(prediction.classes)} if self.has_all else {})


class MultiLabelFormat(ClassFormat):
    """Output of a multi-label classifier: the predicted labels; as JSON, the probabilities of all."""

    missing: ClassVar[dict[str, Any]] = {"labels": None, "classes": None}

    def to_object(self, prediction: "ClassPrediction") -> dict[str, Any]:
        return {"labels": list(prediction.labels), "classes": _rounded(prediction.classes)}


class ValueFormat(ClassFormat):
    """Output of a regression model: the number; of several, their names too."""

    missing: ClassVar[dict[str, Any]] = {"value": None}

    def to_cells(self, prediction: "ClassPrediction") -> list[str]:
        if len(prediction.classes) > 1:
            return super().to_cells(prediction)
        return [format_score(prediction.probability)]

    def to_object(self, prediction: "ClassPrediction") -> dict[str, Any]:
        several = {"classes": _rounded(prediction.classes)} if len(prediction.classes) > 1 else {}
        return {"value": _round(prediction.probability), **several}


FORMATS = {"multi_label": MultiLabelFormat, "regression": ValueFormat}
"""The output of models for other problems than one class per text."""


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


def _rounded(classes: dict[str, float]) -> dict[str, float]:
    return {label: _round(score) for label, score in classes.items()}
