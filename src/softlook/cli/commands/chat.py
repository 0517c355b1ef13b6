"""`softlook chat`: a conversation with a language model."""

import logging
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from softlook.base.errors import DataError
from softlook.cli.console import OutputStream
from softlook.cli.options import FLATTEN, DeviceOption, Int8Option, ModelArg

if TYPE_CHECKING:
    from softlook.recipes.inference.chat import Chat

log = logging.getLogger("softlook.cli")
PROMPT = "> "
RESET, EXIT = "/reset", "/exit"
OWN = "default: the model's own"


@dataclass(frozen=True)
class ChatSampling:
    """How tokens are sampled."""

    max_new_tokens: Annotated[
        int | None, Parameter(help="maximum number of new tokens; default: what fits into the context")
    ] = None
    temperature: Annotated[float | None, Parameter(help=f"0 is greedy decoding; {OWN}, or 0.8")] = None
    top_p: Annotated[
        float | None, Parameter(help=f"nucleus sampling: the smallest set with this probability; {OWN}")
    ] = None
    top_k: Annotated[int | None, Parameter(help=f"sample from the k most likely tokens; {OWN}")] = None
    min_p: Annotated[
        float | None, Parameter(help="sample from tokens with at least this fraction of the maximum probability")
    ] = None
    repetition_penalty: Annotated[float | None, Parameter(help=f"above 1 discourages repetition; {OWN}")] = None
    seed: Annotated[int | None, Parameter(help="random seed, for reproducible answers")] = None


DEFAULT_SAMPLING = ChatSampling()


def chat(
    model: ModelArg,
    /,
    *,
    system: Annotated[str | None, Parameter(help="system message, at the start of the conversation")] = None,
    sampling: Annotated[ChatSampling, FLATTEN] = DEFAULT_SAMPLING,
    stop: Annotated[tuple[str, ...], Parameter(help="stop strings; \\n is a line break")] = (),
    device: DeviceOption = "auto",
    int8: Int8Option = False,
) -> None:
    """Chat with a language model; each line of stdin is a message.

    /reset starts a new conversation, /exit or Ctrl-D ends the command, Ctrl-C stops an answer.
    """
    from softlook.recipes.inference.chat import default_sampling, load_chat  # noqa: PLC0415  (imports torch)
    from softlook.recipes.inference.generation import GenerationParams  # noqa: PLC0415
    from softlook.recipes.inference.pipeline import load_pipeline  # noqa: PLC0415

    pipeline = load_pipeline(model, device=device, int8=int8).require("generate")
    given = {name: value for name, value in asdict(sampling).items() if value is not None}
    stop_strings = tuple(text.replace("\\n", "\n").replace("\\t", "\t") for text in stop)
    params = GenerationParams(**{**default_sampling(model), **given}, stop=stop_strings)
    conversation = load_chat(pipeline, model, params, system=system)
    if conversation.template is None:
        log.info(f"{model} has no chat template: it continues the text of the conversation.")
    ChatLoop(conversation).run()


class ChatLoop:
    """Reads messages and prints answers as they are generated."""

    def __init__(self, conversation: "Chat") -> None:
        self.chat, self.output = conversation, OutputStream()
        self.is_interactive = sys.stdin is not None and sys.stdin.isatty()

    def run(self) -> None:
        """Answer each message until the end of the input."""
        is_first = True
        for text in self._typed() if self.is_interactive else _piped():
            if text == EXIT:
                return
            if text == RESET:
                self.chat.reset()
                log.info("A new conversation.")
            elif text:
                if not is_first and not self.is_interactive and not self.output.json:
                    self.output.write_text("\n")  # between two answers
                self._answer(text)
                is_first = False

    def _answer(self, text: str) -> None:
        """Print an answer; Ctrl-C on a terminal ends the answer, not the conversation."""
        try:
            before = self.chat.num_dropped
            pieces = self.chat.answer(text)
            count = self.chat.num_dropped - before
            if count:
                log.warning(f"The conversation exceeds the context: the {count} oldest messages were dropped.")
            if self.output.json:
                self.output.write_object({"user": text, "assistant": "".join(pieces), "dropped": count})
                self.output.flush()
            else:
                self._print(pieces)
        except DataError as error:
            if not self.is_interactive:
                raise
            log.warning(str(error))
        except KeyboardInterrupt:
            if not self.is_interactive:
                raise
            self.output.write_text("\n")

    def _print(self, pieces: Iterator[str]) -> None:
        last = ""
        for piece in pieces:
            self.output.write_text(piece)
            last = piece
        if not last.endswith("\n"):
            self.output.write_text("\n")

    def _typed(self) -> Iterator[str]:
        """Lines typed in the terminal, until Ctrl-D."""
        with suppress(ImportError):
            import readline  # noqa: F401, PLC0415  (line editing and history; not on Windows)
        log.info(f"Type a message, then Enter. {RESET} starts a new conversation, {EXIT} or Ctrl-D leaves.")
        while True:
            try:
                yield input(PROMPT if self.output.is_terminal else "").strip()
            except KeyboardInterrupt:
                self.output.write_text("\n")
                log.info(f"{EXIT} or Ctrl-D leaves.")
            except EOFError:
                self.output.write_text("\n")
                return


def _piped() -> Iterator[str]:
    """Lines of stdin as they arrive."""
    from softlook.cli.inputs import read_texts  # noqa: PLC0415  (imports torch)

    for batch in read_texts((), ()):
        for one in batch:
            yield one.text.strip()
