"""The `softlook` command: subcommands, common options, exit codes."""

import os
import sys
from collections.abc import Sequence
from typing import Annotated

from cyclopts import App, Group, Parameter

from softlook.base.version import VERSION
from softlook.cli.console import BROKEN_PIPE, ConsoleHandler, exit_code
from softlook.cli.options import STYLE

COMMANDS = "softlook.cli.commands"
PROLOGUE = """
  softlook train translate --data pairs.tsv        two columns, or two files
  softlook train lm --data corpus.txt              train a language model
  softlook train table --data adult.csv --target income
  softlook translate dates "jeudi 3 mars 2022"     the included model
  softlook import gpt2                             convert a Hugging Face folder
  softlook serve runs/lm-corpus                    OpenAI-compatible server
"""
EPILOGUE = """
Results go to stdout (a path or answers; JSON with --json), messages to stderr.
Exit codes: 0 success, 1 run failed, 2 usage error, 65 invalid data, 69 missing
package, 70 internal error, 74 disk error, 130 interrupted, 143 terminated.
"""
IMPORT_HELP = """Convert other weights to a checkpoint.

The architecture is detected, and the tokenizer is converted too.
No pickle is loaded, and no code from a folder is run.
"""
IMPORT_EXAMPLES = """
  softlook import gpt2                  Hugging Face folder
  softlook import model.gguf --to mine  GGUF file of the Llama family
"""
EXPORT_EXAMPLES = """
  softlook export hf mine               for Hugging Face
  softlook export onnx mine --to graph  for ONNX runtimes
"""
EXPORTS = {"hf": "Hugging Face", "onnx": "ONNX runtimes", "ctranslate2": "CTranslate2"}
GENERATE_EXAMPLES = """
  softlook generate runs/lm-poems "Once upon a time"
  softlook generate runs/lm-poems --num-samples 3 --temperature 1 --seed 7
  softlook --json generate gpt2 --file prompts.txt > answers.jsonl
"""
TRANSLATE_EXAMPLES = """
  softlook translate dates "jeudi 3 mars 2022"       the included model
  softlook translate runs/translate-pairs --file a.txt b.txt.gz > translations.txt
  cat a.txt | softlook translate runs/translate-pairs --reference references.txt
"""
CLASSIFY_EXAMPLES = """
  softlook classify runs/classify-reviews "What a film."
  softlook classify runs/classify-reviews --file new.csv --text review > classes.tsv
"""
TAG_EXAMPLES = """
  softlook tag runs/tag-conll "Ada Lovelace lived in London."
  softlook --json tag runs/tag-conll --file articles.txt > entities.jsonl
"""
EMBED_EXAMPLES = """
  softlook embed all-MiniLM-L6-v2 "A sentence." "Another one."
  softlook embed all-MiniLM-L6-v2 --file corpus.txt --to embeddings.parquet
  softlook embed runs/word2vec-corpus king queen      word vectors
"""
PREDICT_EXAMPLES = """
  softlook predict runs/table-adult --data new.csv > predictions.csv
  softlook predict runs/table-adult --data new.parquet --out predictions.parquet --probabilities
  cat new.csv | softlook predict runs/table-adult - --keep id
"""
TUNE_EXAMPLES = """
  softlook tune --data adult.csv --target income --trials 20 --max-minutes 10
  softlook tune --data adult.csv --target income --estimator ft --model.depth 3
  softlook train table --config runs/tune-adult/best.toml
"""
SIMPLE_COMMANDS: tuple[tuple[str, str, str, str], ...] = (
    ("serve", "serve:serve", "Serve models over HTTP.", ""),
    ("import", "import_weights:import_weights", IMPORT_HELP, IMPORT_EXAMPLES),
    ("tune", "tune:tune", "Search for the best hyperparameters for a table.", TUNE_EXAMPLES),
    ("check", "check:check", "Check data before training, and estimate its cost.", ""),
    ("eval", "evaluate:evaluate", "Evaluate a run on other data.", ""),
    ("runs", "runs:runs", "List runs, newest first.", ""),
    ("generate", "generate:generate", "Continue prompts with a language model.", GENERATE_EXAMPLES),
    ("translate", "translate:translate", "Translate texts.", TRANSLATE_EXAMPLES),
    ("classify", "classify:classify", "Classify texts.", CLASSIFY_EXAMPLES),
    ("tag", "tag:tag", "Find the entities of texts.", TAG_EXAMPLES),
    ("embed", "embed:embed", "Compute embeddings of texts or words.", EMBED_EXAMPLES),
    ("predict", "predict:predict", "Predict the target of table rows.", PREDICT_EXAMPLES),
    ("demo", "demo:demo", "Train a Transformer to translate dates, and plot its attention.", ""),
    ("info", "info:info", "Print versions, devices and free disk space.", ""),
    ("doctor", "info:doctor", "Check that everything a run needs works.", ""),
)
"""Name, module and function, help, examples."""
SHOWING_DEFAULTS = ("serve", "import")
"""Commands whose help shows the defaults of flags."""
COMMON_OPTIONS = Group("Common options", sort_key=9)
CommonFlag = Parameter(group=COMMON_OPTIONS, negative="", show_default=False)

app = App(
    name="softlook",
    version=VERSION,
    help="Train, run and serve Transformers on your own texts and tables.",
    help_prologue=PROLOGUE,
    help_epilogue=EPILOGUE,
    help_format="plaintext",
    result_action="return_value",
    print_error=False,
    exit_on_error=False,
    suppress_keyboard_interrupt=False,
)
"""Commands are registered by import path, and imported only when they run: `--help` does not import torch."""
app.command(f"{COMMANDS}.train:app", name="train", help="Train a model.")
for _name, _path, _help, _examples in SIMPLE_COMMANDS:
    _texts = {"help": _help, "help_prologue": _examples, "help_epilogue": ""}
    _style = None if _name in SHOWING_DEFAULTS else STYLE
    app.command(f"{COMMANDS}.{_path}", name=_name, default_parameter=_style, **_texts)
export = App(
    name="export", help="Write a checkpoint for other programs.", help_prologue=EXPORT_EXAMPLES, help_epilogue=""
)
for _name, _program in EXPORTS.items():
    export.command(f"{COMMANDS}.export:{_name}", help=f"Write a checkpoint for {_program}.")
app.command(export)
tokenizer = App(name="tokenizer", help="Train or inspect a tokenizer.", help_prologue="", help_epilogue="")
tokenizer.command(f"{COMMANDS}.tokenizer:train", help="Train a tokenizer on text files.", default_parameter=STYLE)
tokenizer.command(f"{COMMANDS}.tokenizer:show", help="Print the tokens of a text.", default_parameter=STYLE)
app.command(tokenizer)


@app.meta.default
def launch(
    *arguments: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    json: Annotated[bool, CommonFlag] = False,
    quiet: Annotated[bool, CommonFlag, Parameter(alias="-q")] = False,
    debug: Annotated[bool, CommonFlag] = False,
) -> int:
    """Run a command and return its exit code.

    Parameters
    ----------
    json
        Print the result, or the error, as one JSON object; answers as one object each.
    quiet
        Print only warnings and errors.
    debug
        Print the traceback of an error.
    """
    handler = ConsoleHandler(json=json, quiet=quiet, debug=debug)
    try:
        with handler.installed():
            handler.print_result(app(_expand_hyphen(arguments)))
    except SystemExit:
        raise
    except BaseException as error:  # some libraries panic with a BaseException
        return handler.print_error(error, exit_code(error))
    return 0


def _expand_hyphen(arguments: Sequence[str]) -> list[str]:
    """Replace the hyphen of `softlook predict RUN -` by a path: cyclopts takes it for an option.

    >>> _expand_hyphen(["predict", "run", "-"])
    ['predict', 'run', '/dev/stdin']
    """
    return ["/dev/stdin" if one == "-" and "predict" in arguments[:1] else one for one in arguments]


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `softlook` and of `python -m softlook`."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        code = app.meta(arguments, result_action="return_value", print_error=False, exit_on_error=False)
    except SystemExit:
        raise
    except BaseException as error:
        code = ConsoleHandler(json="--json" in arguments).print_error(error, exit_code(error))
    if code == BROKEN_PIPE.code:  # stdout is closed: Python would report it again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)
