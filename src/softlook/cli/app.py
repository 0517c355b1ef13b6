"""The words of the command line, what they have in common, and how each one ends."""

import os
import sys
from collections.abc import Sequence
from typing import Annotated

from cyclopts import App, Group, Parameter

from softlook.base.version import VERSION
from softlook.cli.ending import NOBODY, ending
from softlook.cli.talk import Talk
from softlook.cli.words import ASK, EXAMPLES, add_words, spelled

IMPORTS = """
  softlook import gpt2                  a folder of Hugging Face's
  softlook import model.gguf --to mine  a GGUF file of the Llama family
"""
EXPORTS = """
  softlook export hf mine               for Hugging Face
  softlook export onnx mine --to graph  for ONNX runtimes
"""
IMPORT = """Keep other people's weights as a checkpoint.

The architecture is recognised and said; the tokenizer comes along.
No pickle is opened, and nothing that a file names is run.
"""
ENDINGS = """
stdout carries the result (a path or answers; with --json objects), stderr the talk.
Exit codes: 0 done, 1 the run failed, 2 not understood, 65 bad data,
69 a package is missing, 70 a fault of softlook's own, 74 the disk stands in the
way, 130 interrupted, 143 told to end.
"""
COMMON = Group("Common options", sort_key=9)
Flag = Parameter(group=COMMON, negative="", show_default=False)

app = App(
    name="softlook",
    version=VERSION,
    help="Attention as a soft look-up: train models on your own texts and tables, and other people's weights.",
    help_prologue=EXAMPLES + ASK.lstrip("\n") + IMPORTS.lstrip("\n") + EXPORTS.lstrip("\n"),
    help_epilogue=ENDINGS,
    help_format="plaintext",
    result_action="return_value",
    print_error=False,
    exit_on_error=False,
    suppress_keyboard_interrupt=False,
)
"""The commands. Each is named by where it lives, and loaded only when it is called."""
app.command("softlook.cli.importing:import_weights", name="import", help=IMPORT, help_prologue=IMPORTS)
export = App(name="export", help="Write a checkpoint for other people's programs.", help_prologue=EXPORTS)
for name, program in (("hf", "Hugging Face"), ("onnx", "ONNX runtimes"), ("ctranslate2", "CTranslate2")):
    export.command(f"softlook.cli.exporting:{name}", help=f"Write a checkpoint for {program}.")
app.command(export)
app.command("softlook.cli.serving:serve", help="Answer requests over HTTP, as OpenAI's API does.", help_prologue="")
add_words(app)


@app.meta.default
def launch(
    *words: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    json: Annotated[bool, Flag] = False,
    quiet: Annotated[bool, Flag, Parameter(alias="-q")] = False,
    debug: Annotated[bool, Flag] = False,
) -> int:
    """Run one command, and give the code that it ends in.

    Parameters
    ----------
    json
        Print the result, or the error, as one JSON object; of answers, each.
    quiet
        Say nothing but what went wrong.
    debug
        Show where in the code it went wrong.
    """
    talk = Talk(json=json, quiet=quiet, debug=debug)
    try:
        with talk.listening():
            talk.result(app(spelled(words)))
    except SystemExit:
        raise
    except BaseException as fault:  # some libraries panic with what is no Exception
        return talk.fault(fault, ending(fault))
    return 0


def main(words: Sequence[str] | None = None) -> None:
    """The way in: `softlook`, and `python -m softlook`."""
    words = sys.argv[1:] if words is None else words
    try:
        code = app.meta(words, result_action="return_value", print_error=False, exit_on_error=False)
    except SystemExit:
        raise
    except BaseException as fault:
        code = Talk(json="--json" in words).fault(fault, ending(fault))
    if code == NOBODY.code:  # the pipe is closed, and Python would complain of it once more at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)
