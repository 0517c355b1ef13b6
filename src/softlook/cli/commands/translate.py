"""`softlook translate`: translate texts."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from softlook.base.errors import ConfigError, DataError
from softlook.cli.console import OutputStream, counter
from softlook.cli.options import DeviceOption, FileOption, Int8Option, ModelArg, TextArgs
from softlook.data.lines import read_lines

if TYPE_CHECKING:
    from softlook.cli.inputs import TextBatch
    from softlook.recipes.inference.pipeline import Pipeline
    from softlook.recipes.inference.translation import ScoredTranslation, TranslationResult

log = logging.getLogger("softlook.cli")
SCORE_DIGITS = 4
MAX_LISTED_LINES = 8


def translate(
    model: ModelArg,
    /,
    *texts: TextArgs,
    file: FileOption = (),
    num_beams: Annotated[
        int | None, Parameter(help="beam width; 1 is greedy decoding; default: the model's own")
    ] = None,
    length_penalty: Annotated[
        float | None, Parameter(help="above 0 favors longer translations; default: the model's own")
    ] = None,
    split_sentences: Annotated[
        bool, Parameter(help="translate sentence by sentence; default: only texts longer than those in training")
    ] = False,
    n_best: Annotated[int, Parameter(help="candidates per text: line number, score, translation")] = 1,
    alignments: Annotated[bool, Parameter(help="add word alignments: source-target pairs, from 0")] = False,
    token_alignments: Annotated[bool, Parameter(help="align tokens instead of words")] = False,
    reference: Annotated[
        Path | None, Parameter(help="file of reference translations: print BLEU and chrF (sacreBLEU)")
    ] = None,
    source_language: Annotated[
        str | None, Parameter(help="source language of a multilingual model: en_XX, eng_Latn; default: the model's own")
    ] = None,
    target_language: Annotated[
        str | None, Parameter(help="target language of a multilingual model: fr_XX, fra_Latn; default: the model's own")
    ] = None,
    device: DeviceOption = "auto",
    int8: Int8Option = False,
) -> None:
    """Translate texts."""
    from softlook.cli.inputs import read_texts  # noqa: PLC0415  (imports torch)
    from softlook.recipes.inference.pipeline import load_pipeline  # noqa: PLC0415
    from softlook.recipes.inference.translation import with_languages  # noqa: PLC0415

    pipeline = load_pipeline(model, device=device, int8=int8).require("translate")
    pipeline = with_languages(pipeline, source_language, target_language)
    translator = Translator(
        pipeline, num_beams, length_penalty, n_best, alignments, token_alignments, reference, split_sentences
    )
    translator.run(read_texts(texts, file))


@dataclass(frozen=True)
class Translator:
    """Translates and prints batches of texts."""

    pipeline: "Pipeline"
    num_beams: int | None = None
    length_penalty: float | None = None
    n_best: int = 1
    alignments: bool = False
    token_alignments: bool = False
    reference: Path | None = None
    split_sentences: bool = False

    def run(self, batches: "Iterator[TextBatch]") -> None:
        """One line per text, then the scores if there is a reference."""
        from softlook.recipes.inference.translation import translate as translate_texts  # noqa: PLC0415

        output, outputs, truncated = OutputStream(), list[str](), list[int]()
        references = None if self.reference is None else _read_references(self.reference)
        with counter(output) as count:
            for batch in batches:
                results = translate_texts(
                    self.pipeline,
                    batch,
                    num_beams=self.num_beams,
                    length_penalty=self.length_penalty,
                    n_best=self.n_best,
                    with_alignment=self.alignments or self.token_alignments,
                    split_sentences=self.split_sentences,
                )
                for line, result in enumerate(results, count.count + 1):
                    truncated += [line] if result.candidates and result.candidates[0].finish_reason == "length" else []
                    self._print(output, line, result)
                count.add(len(batch))
                outputs += [result.text for result in results] if references is not None else []
        if truncated:
            log.warning(truncation_warning(truncated))
        if references is not None and self.reference is not None:
            _print_scores(output, outputs, references, self.reference)

    def _print(self, output: OutputStream, line: int, result: "TranslationResult") -> None:
        if output.json:
            output.write_object(self._to_object(result))
        elif self.n_best > 1:
            for candidate in result.candidates:
                score = f"{candidate.score:.{SCORE_DIGITS}f}"
                output.write_line(str(line), score, candidate.text, *self._alignment_cells(candidate))
        else:
            output.write_line(result.text, *(self._alignment_cells(result.candidates[0]) if result.candidates else []))

    def _alignment_cells(self, candidate: "ScoredTranslation") -> list[str]:
        from softlook.decode.alignment import format_pharaoh  # noqa: PLC0415

        alignment = candidate.alignment
        if alignment is None:
            return []
        return [format_pharaoh(alignment.token_pairs() if self.token_alignments else alignment.word_pairs())]

    def _to_object(self, result: "TranslationResult") -> dict[str, Any]:
        candidates = [self._candidate(candidate) for candidate in result.candidates]
        first = candidates[0] if candidates else {"translation": "", "score": None, "finish_reason": None}
        return {"source": result.source, **first, **({"n_best": candidates} if self.n_best > 1 else {})}

    def _candidate(self, candidate: "ScoredTranslation") -> dict[str, Any]:
        content: dict[str, Any] = {
            "translation": candidate.text,
            "score": round(candidate.score, 6),
            "finish_reason": candidate.finish_reason,
        }
        alignment = candidate.alignment
        if alignment is not None:
            content["alignment"] = {
                "words": alignment.word_pairs(),
                "source": alignment.source,
                "target": alignment.target,
                "weights": [[round(weight, SCORE_DIGITS) for weight in row] for row in alignment.weights.tolist()],
            }
        return content


def truncation_warning(lines: Sequence[int]) -> str:
    """Warning about translations that reached the length limit.

    >>> truncation_warning([3, 7])
    '2 translations were truncated at the length limit: lines 3, 7'
    """
    listed = ", ".join(map(str, lines[:MAX_LISTED_LINES])) + ", ..." * (len(lines) > MAX_LISTED_LINES)
    subject = "1 translation was" if len(lines) == 1 else f"{len(lines):,} translations were"
    return f"{subject} truncated at the length limit: line{'s' * (len(lines) > 1)} {listed}"


def _read_references(path: Path) -> list[str]:
    texts = []
    for line in read_lines(path):
        if line.error:
            raise line.error
        texts.append(line.text)
    return texts


def _print_scores(output: OutputStream, texts: Sequence[str], references: Sequence[str], file: Path) -> None:
    from softlook.recipes.text.metrics import translation_scores  # noqa: PLC0415  (an extra)

    if len(texts) != len(references):
        raise DataError(f"there are {len(texts):,} translations and {len(references):,} references", file=file)
    if not texts:
        raise ConfigError("there is nothing to score: no line was translated")
    scores = translation_scores(texts, references)
    if output.json:
        output.write_object({"scores": scores})
        return
    log.warning(f"BLEU {scores['bleu']:.2f}  {scores['bleu_signature']}")
    log.warning(f"chrF {scores['chrf']:.2f}  {scores['chrf_signature']}")
