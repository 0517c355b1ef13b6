"""The `softlook` command: subcommands, common options, exit codes."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import App, Group, Parameter

from softlook.base.version import VERSION
from softlook.cli.config_app import HELP_ALL, showing_all_options
from softlook.cli.console import BROKEN_PIPE, CommandResult, ConsoleHandler, exit_code
from softlook.cli.help_format import HelpFormatter
from softlook.cli.options import OPTIONS, STYLE
from softlook.cli.usage import expand_help, introduction

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
CHAT_HELP = """Chat with a language model.

Each line is a message. /reset starts a new conversation, /exit or Ctrl-D
leaves, Ctrl-C stops an answer.
"""
CHAT_EXAMPLES = """
  softlook chat Qwen2.5-0.5B-Instruct
  softlook chat Qwen2.5-0.5B-Instruct --system "Be brief." --temperature 0
  softlook --json chat Qwen2.5-0.5B-Instruct < messages.txt > answers.jsonl
"""
TRANSLATE_EXAMPLES = """
  softlook translate dates "jeudi 3 mars 2022"       the included model
  softlook translate runs/translate-pairs --file a.txt b.txt.gz > out.txt
  cat a.txt | softlook translate runs/translate-pairs --reference correct.txt
"""
CLASSIFY_EXAMPLES = """
  softlook classify runs/classify-reviews "What a film."
  softlook classify runs/classify-reviews --file new.csv --text review > out.tsv
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
SEARCH_EXAMPLES = """
  softlook search all-MiniLM-L6-v2 --index corpus.txt "how do I return an item?"
  softlook search all-MiniLM-L6-v2 --index corpus.csv --save corpus.safetensors
  softlook search all-MiniLM-L6-v2 --index corpus.safetensors < queries.txt
  softlook search runs/word2vec-corpus king           nearest words
"""
FILL_EXAMPLES = """
  softlook fill bert-base-uncased "The capital of France is [MASK]."
  softlook fill runs/mlm-corpus --file masked.txt --top-k 1 > predictions.tsv
"""
INSPECT_EXAMPLES = """
  softlook inspect bert-base-uncased "The animal was tired."
  softlook inspect dates "jeudi 3 mars 2022" --head all      cross-attention
  softlook inspect runs/lm-poems "Once upon" --layer all --html attention.html
"""
FIGURE_EXAMPLES = """
  softlook figure --list                             pictures of the ideas
  softlook figure multi_head --out multi_head.png
  softlook figure bert-base-uncased "The animal was tired." --out heads.html
  softlook figure dates "5 4 2003" --kind beams
"""
STUDIO_EXAMPLES = """
  softlook studio                                    a recorded trace at once
  softlook studio runs/lm-poems --text "Once upon a time"
  softlook studio trace.safetensors                  a file of Trace.save
"""
PREDICT_EXAMPLES = """
  softlook predict runs/table-adult --data new.csv > predictions.csv
  softlook predict runs/table-adult --data new.csv --out out.csv --probabilities
  cat new.csv | softlook predict runs/table-adult - --keep id
"""
BATCH_EXAMPLES = """
  softlook batch runs/classify-reviews reviews predicted --keep id
  softlook batch runs/table-adult people predicted --workers 8   on Ray
"""
SERVE_EXAMPLES = """
  softlook serve runs/lm-poems
  softlook serve poems=runs/lm-poems reviews=runs/classify-reviews --port 8080
"""
CHECK_EXAMPLES = """
  softlook check reviews.csv
  softlook check people.csv --target income          as a table
  softlook check train.en train.de --task translate  lines that correspond
"""
EVAL_EXAMPLES = """
  softlook eval runs/classify-reviews test.csv
  softlook --json eval runs/lm-poems more.txt > scores.json
"""
RUNS_EXAMPLES = """
  softlook runs
  softlook runs experiments                          another folder
"""
DEMO_EXAMPLES = """
  softlook demo                                      a few minutes on a CPU
  softlook demo "25 décembre 1999" --pretrained      without training
"""
TOKENIZER_EXAMPLES = """
  softlook tokenizer train corpus.txt --vocab-size 4000
  softlook tokenizer show tokenizer.json "Once upon a time"
"""
PLAN_HELP = """Plan training on many GPUs: memory, time, communication.

From figures measured on one H200; bandwidths are as specified.
"""
PLAN_EXAMPLES = """
  softlook plan --params 124M
  softlook plan --params 7B --gpus 64 --context 32k --tokens 1T
"""
STANDARD_STREAMS = {"predict": "/dev/stdin", "figure": "/dev/stdout"}
"""What a hyphen stands for, by command."""
SIMPLE_COMMANDS: tuple[tuple[str, str, str, str], ...] = (
    ("serve", "serve:serve", "Serve models over HTTP.", SERVE_EXAMPLES),
    ("import", "import_weights:import_weights", IMPORT_HELP, IMPORT_EXAMPLES),
    ("check", "check:check", "Check data, and estimate the cost of training on it.", CHECK_EXAMPLES),
    ("plan", "plan:plan", PLAN_HELP, PLAN_EXAMPLES),
    ("eval", "evaluate:evaluate", "Evaluate a run on other data.", EVAL_EXAMPLES),
    ("runs", "runs:runs", "List runs, newest first.", RUNS_EXAMPLES),
    ("generate", "generate:generate", "Continue prompts with a language model.", GENERATE_EXAMPLES),
    ("chat", "chat:chat", CHAT_HELP, CHAT_EXAMPLES),
    ("translate", "translate:translate", "Translate texts.", TRANSLATE_EXAMPLES),
    ("classify", "classify:classify", "Classify texts.", CLASSIFY_EXAMPLES),
    ("tag", "tag:tag", "Find the entities of texts.", TAG_EXAMPLES),
    ("embed", "embed:embed", "Compute embeddings of texts or words.", EMBED_EXAMPLES),
    ("search", "search:search", "Find the most similar texts or words.", SEARCH_EXAMPLES),
    ("fill", "fill:fill", "Predict masked tokens.", FILL_EXAMPLES),
    ("inspect", "inspect:inspect", "Show the attention of a model for a text.", INSPECT_EXAMPLES),
    ("figure", "figure:figure", "Draw attention as SVG, PNG or HTML.", FIGURE_EXAMPLES),
    ("studio", "studio:studio", "Show attention in the browser: look, change, compare.", STUDIO_EXAMPLES),
    ("predict", "predict:predict", "Predict the target of table rows.", PREDICT_EXAMPLES),
    ("batch", "batch:batch", "Predict every row of a folder of Parquet files.", BATCH_EXAMPLES),
    ("demo", "demo:demo", "Train a Transformer to translate dates, and plot its attention.", DEMO_EXAMPLES),
    ("info", "info:info", "Print versions, devices and free disk space.", ""),
    ("doctor", "info:doctor", "Check that everything a run needs works.", ""),
)
"""Name, module and function, help, examples."""
COMMON_OPTIONS = Group("Common options", sort_key=9)
CommonFlag = Parameter(group=COMMON_OPTIONS, negative="", show_default=False)

app = App(
    name="softlook",
    version=VERSION,
    help="Train, run and serve Transformers on your own texts and tables.",
    help_prologue=PROLOGUE,
    help_epilogue=EPILOGUE,
    help_format="plaintext",
    help_formatter=HelpFormatter(),
    group_parameters=OPTIONS,
    result_action="return_value",
    print_error=False,
    exit_on_error=False,
    suppress_keyboard_interrupt=False,
)
"""Commands are registered by import path, and imported only when they run: `--help` does not import torch."""
app.command(f"{COMMANDS}.train:app", name="train", help="Train a model.")
app.command(f"{COMMANDS}.tune:app", name="tune", help="Search for the best hyperparameters for a table.")
for _name, _path, _help, _examples in SIMPLE_COMMANDS:
    _texts = {"help": _help, "help_prologue": _examples, "help_epilogue": ""}
    app.command(f"{COMMANDS}.{_path}", name=_name, default_parameter=STYLE, **_texts)
export = App(
    name="export", help="Write a checkpoint for other programs.", help_prologue=EXPORT_EXAMPLES, help_epilogue=""
)
for _name, _program in EXPORTS.items():
    export.command(f"{COMMANDS}.export:{_name}", help=f"Write a checkpoint for {_program}.", default_parameter=STYLE)
app.command(export)
tokenizer = App(
    name="tokenizer", help="Train or inspect a tokenizer.", help_prologue=TOKENIZER_EXAMPLES, help_epilogue=""
)
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
        print results and errors as JSON, one object per line
    quiet
        print only warnings and errors
    debug
        print the traceback of an error
    """
    handler = ConsoleHandler(json=json, quiet=quiet, debug=debug)
    if (text := introduction(arguments)) is not None:
        handler.print_result(CommandResult(Path(), {"usage": text}, text))
        return 0
    try:
        with handler.installed():
            handler.print_result(app(_expand_hyphen(expand_help(arguments))))
    except SystemExit:
        raise
    except BaseException as error:  # some libraries panic with a BaseException
        return handler.print_error(error, exit_code(error))
    return 0


def _expand_hyphen(arguments: Sequence[str]) -> list[str]:
    """Replace the hyphen of `softlook predict RUN -` or `softlook figure NAME --out -` by a path.

    cyclopts takes it for an option.

    >>> _expand_hyphen(["predict", "run", "-"]), _expand_hyphen(["figure", "notation", "--out", "-"])
    (['predict', 'run', '/dev/stdin'], ['figure', 'notation', '--out', '/dev/stdout'])
    """
    path = STANDARD_STREAMS.get(arguments[0]) if arguments else None
    return [path if one == "-" and path else one for one in arguments]


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `softlook` and of `python -m softlook`."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if HELP_ALL in arguments:
        arguments = ["--help" if one == HELP_ALL else one for one in arguments]
        with showing_all_options():
            return main(arguments)
    try:
        code = app.meta(arguments, result_action="return_value", print_error=False, exit_on_error=False)
    except SystemExit:
        raise
    except BaseException as error:
        code = ConsoleHandler(json="--json" in arguments).print_error(error, exit_code(error))
    if code == BROKEN_PIPE.code:  # stdout is closed: Python would report it again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)
