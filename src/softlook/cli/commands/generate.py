"""`softlook generate`: continue prompts with a language model."""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from softlook.base.errors import DataError
from softlook.cli.console import OutputStream
from softlook.cli.options import FLATTEN, DeviceOption, FileOption, Int8Option, ModelArg, TextArgs

if TYPE_CHECKING:
    from softlook.cli.inputs import TextBatch
    from softlook.recipes.inference.generation import GeneratedText, GenerationParams
    from softlook.recipes.inference.pipeline import Pipeline, TextInput

LOGPROB_DIGITS = 4


@dataclass(frozen=True)
class SamplingOptions:
    """How tokens are sampled."""

    max_new_tokens: Annotated[int | None, Parameter(help="maximum number of new tokens; default: 200")] = None
    temperature: Annotated[float, Parameter(help="0 is greedy decoding; 1 samples from the model's distribution")] = 0.8
    top_p: Annotated[float | None, Parameter(help="nucleus sampling: the smallest set with this probability")] = None
    top_k: Annotated[int | None, Parameter(help="sample from the k most likely tokens")] = None
    min_p: Annotated[
        float | None, Parameter(help="sample from tokens with at least this fraction of the maximum probability")
    ] = None
    repetition_penalty: Annotated[float, Parameter(help="above 1 discourages repetition")] = 1.0
    seed: Annotated[int | None, Parameter(help="random seed, for reproducible samples; default: a random one")] = None


DEFAULT_SAMPLING = SamplingOptions()


def generate(
    model: ModelArg,
    /,
    *prompts: TextArgs,
    file: FileOption = (),
    whole_file: Annotated[bool, Parameter(help="read each file, or stdin, as one prompt instead of by lines")] = False,
    sampling: Annotated[SamplingOptions, FLATTEN] = DEFAULT_SAMPLING,
    label: Annotated[
        str | None, Parameter(help="class of the text, of a model trained with `softlook train lm --label`")
    ] = None,
    guidance: Annotated[
        float, Parameter(help="with --label: above 1 the text follows its class more strongly, 3 is usual")
    ] = 1.0,
    no_context_shift: Annotated[
        bool, Parameter(help="stay within the model's context; default: when it is full, continue from its last half")
    ] = False,
    num_samples: Annotated[int, Parameter(help="number of samples per prompt")] = 1,
    stop: Annotated[tuple[str, ...], Parameter(help="stop strings; \\n is a line break")] = (),
    json_schema: Annotated[Path | None, Parameter(help="file with a JSON schema that the output must follow")] = None,
    logprobs: Annotated[bool, Parameter(help="print each token with its log-probability and rank")] = False,
    device: DeviceOption = "auto",
    int8: Int8Option = False,
) -> None:
    """Continue prompts with a language model."""
    from softlook.cli.inputs import read_texts, read_whole_files  # noqa: PLC0415  (imports torch)
    from softlook.recipes.inference.generation import GenerationParams  # noqa: PLC0415
    from softlook.recipes.inference.pipeline import load_pipeline  # noqa: PLC0415

    stop_strings = tuple(text.replace("\\n", "\n").replace("\\t", "\t") for text in stop)
    params = GenerationParams(
        **asdict(sampling),
        stop=stop_strings,
        json_schema=_load_schema(json_schema),
        label=label,
        guidance=guidance,
        context_shift=not no_context_shift,
    )
    pipeline = load_pipeline(model, device=device, int8=int8).require("generate")
    is_unprompted = not prompts and not file and sys.stdin is not None and sys.stdin.isatty()
    batches = read_whole_files(prompts, file) if whole_file else read_texts(("",) if is_unprompted else prompts, file)
    Generator(pipeline, params, num_samples, logprobs).run(batches)


def _load_schema(path: Path | None) -> dict[str, Any] | None:
    if path is None:
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"this is not valid JSON: {error}", file=path) from None
    if not isinstance(content, dict):
        raise DataError("a JSON schema must be an object", file=path, help='for example {"type": "object"}')
    return content


@dataclass(frozen=True)
class Generator:
    """Generates and prints samples for batches of prompts."""

    pipeline: "Pipeline"
    params: "GenerationParams"
    num_samples: int = 1
    logprobs: bool = False

    def run(self, batches: "Iterator[TextBatch]") -> None:
        """A single prompt is streamed token by token. Without a prompt, generate from scratch."""
        from softlook.recipes.inference.pipeline import TextInput  # noqa: PLC0415

        output, index = OutputStream(), 0
        is_plain = self.num_samples == 1 and not (output.json or self.logprobs)
        for batch in chain([next(batches, None) or [TextInput("")]], batches):
            if is_plain and len(batch) == 1:
                self._stream(output, batch[0], index)
            else:
                self._generate(output, batch, index)
            output.flush()
            index += len(batch)

    def _stream(self, output: OutputStream, prompt: "TextInput", index: int) -> None:
        from softlook.recipes.inference.generation import stream  # noqa: PLC0415

        last = ""
        output.write_text("\n" * (index > 0))
        try:
            for text in stream(self.pipeline, prompt, self.params, index=index):
                output.write_text(text)
                last = text
        finally:  # also when interrupted
            if not last.endswith("\n"):
                output.write_text("\n")

    def _generate(self, output: OutputStream, batch: "TextBatch", index: int) -> None:
        from softlook.recipes.inference.generation import generate as generate_texts  # noqa: PLC0415

        indices = range(index, index + len(batch))
        results = generate_texts(self.pipeline, batch, self.params, num_samples=self.num_samples, indices=indices)
        for offset, result in enumerate(results):
            if output.json:
                output.write_object(self._to_object(result))
            else:
                output.write_text("\n" * (index + offset > 0))  # between two samples, which may have several lines
                self._print(output, result)

    def _print(self, output: OutputStream, result: "GeneratedText") -> None:
        if self.logprobs:
            for token, text in zip(result.tokens, result.token_texts, strict=True):
                logprob = f"{token.logprob:.{LOGPROB_DIGITS}f}"
                output.write_line(logprob, str(token.rank), json.dumps(text, ensure_ascii=False))
        else:
            output.write_text(result.text if result.text.endswith("\n") else result.text + "\n")

    def _to_object(self, result: "GeneratedText") -> dict[str, Any]:
        content: dict[str, Any] = {
            "prompt": result.prompt,
            "text": result.text,
            "finish_reason": result.finish_reason,
            "logprob": round(result.logprob, LOGPROB_DIGITS),
            "tokens": len(result.tokens),
            "seed": result.seed,
        }
        if self.logprobs:
            content["logprobs"] = [
                {"id": token.id, "text": text, "logprob": round(token.logprob, 6), "rank": token.rank}
                for token, text in zip(result.tokens, result.token_texts, strict=True)
            ]
        return content
