"""Answers to incomplete and mistaken command lines: short introductions, and what an unknown option may mean."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path

from cyclopts import CycloptsError, MissingArgumentError, UnknownCommandError, UnknownOptionError, UnusedCliTokensError

from softlook.base.errors import ConfigError, DataError
from softlook.cli.options import quote
from softlook.cli.synonyms import COMMAND_SYNONYMS, OPTION_ANSWERS, OPTION_COMMANDS, OPTION_SYNONYMS

INTRODUCTION = """softlook trains, runs and serves Transformers on your own texts and tables.

  softlook demo                               train a small model in minutes
  softlook check reviews.csv                  see what to train on a file
  softlook train classify --data reviews.csv  train a model
  softlook runs                               list trained models

softlook --help lists all commands, softlook COMMAND --help the options of one."""
TRAIN_INTRODUCTION = """softlook train needs a task, and data:

  softlook train classify  --data reviews.csv               classify texts
  softlook train translate --data pairs.tsv                 translate texts
  softlook train lm        --data corpus.txt                continue texts
  softlook train mlm       --data corpus.txt                fill in masked words
  softlook train tag       --data train.conll               find named entities
  softlook train word2vec  --data corpus.txt                word vectors
  softlook train table     --data people.csv --target wage  predict a column
  softlook train images    --data photos                    classify images

softlook train TASK --help shows the options of a task; softlook check FILE
says which task suits a file."""
GLOBAL_OPTIONS = ("--json", "--quiet", "--debug", "--help", "--version")
MODEL_ARGUMENTS = ("MODEL", "RUN", "MODELS", "CHECKPOINT")
MODEL_OPTIONS = OPTION_SYNONYMS["--model"]


def introduction(arguments: Sequence[str]) -> str | None:
    """A short answer to a command line without a command or a task; None if it has one."""
    return {(): INTRODUCTION, ("train",): TRAIN_INTRODUCTION}.get(tuple(arguments))


def expand_help(arguments: Sequence[str]) -> list[str]:
    """`softlook help COMMAND` as `softlook COMMAND --help`.

    >>> expand_help(["help", "train", "lm"]), expand_help(["train", "lm"])
    (['train', 'lm', '--help'], ['train', 'lm'])
    """
    first, *rest = arguments or [""]
    return [*rest, "--help"] if first == "help" else list(arguments)


def explain(error: CycloptsError) -> str | None:
    """What is wrong with a command line, and what may be meant; None if cyclopts says it well enough."""
    if isinstance(error, UnknownOptionError):
        return _explain_option(error)
    if isinstance(error, UnknownCommandError):
        return _explain_command(error)
    if isinstance(error, MissingArgumentError):
        return _explain_missing(error)
    if isinstance(error, UnusedCliTokensError):
        unexpected = " ".join(error.unused_tokens or ())
        return f"unexpected argument: {unexpected}. {_see_help(error)}"
    return _explain_value(error)


def suggest_option(option: str, known: Iterable[str]) -> str:
    """The option of a command that an unknown one may mean; empty if there is none.

    >>> suggest_option("--learning_rate", ["--lr"]), suggest_option("--gpu", ["--device"])
    ('--lr', '--device cuda')
    >>> suggest_option("--patience", ["--training.patience"]), suggest_option("--dta", ["--data"])
    ('--training.patience', '--data')
    """
    names, option = list(known), option.replace("_", "-")
    candidates = [option, *OPTION_SYNONYMS.get(option, ())]
    candidates += [name for name in names if name.endswith(f".{option.lstrip('-')}")]
    close = get_close_matches(option, names, n=1)
    return next((one for one in (*candidates, *close) if one.split(" ")[0] in names), "")


def _explain_option(error: UnknownOptionError) -> str:
    option = (error.token.keyword or error.token.value).partition("=")[0]
    plain, arguments = option.replace("_", "-"), [one for one in error.argument_collection if one.parse]
    names = [name for argument in arguments for name in argument.names]
    unknown, suggestion = f"unknown option {option}.", suggest_option(option, names)
    answer = OPTION_ANSWERS.get(suggestion) if plain in OPTION_SYNONYMS else OPTION_ANSWERS.get(plain)
    if answer:
        return f"{unknown} {answer}"
    if OPTION_SYNONYMS.get(plain) == MODEL_OPTIONS and (label := _model_argument(names)):
        return f"{unknown} The model is the first argument: {_command(error)} {label} ..."
    if suggestion:
        return f"{unknown} Did you mean {suggestion}?"
    if plain in OPTION_COMMANDS:
        return f"{unknown} It is an option of `softlook {OPTION_COMMANDS[plain][0]}`."
    return f"{unknown} {_see_help(error)}"


def _model_argument(names: Iterable[str]) -> str | None:
    return next((name for name in names if name in MODEL_ARGUMENTS), None)


def _explain_value(error: CycloptsError) -> str | None:
    """What is wrong with the value of a config's field."""
    errors = getattr(error.__cause__, "errors", None)
    if errors is None:
        return None
    first = errors()[0]
    option = f"--{'.'.join(map(str, first['loc'])).replace('_', '-')}"
    if first["type"] == "model_type":  # the name of a group of fields
        meant = OPTION_SYNONYMS.get(option)
        return f"unknown option {option}. " + (f"Did you mean {meant[0]}?" if meant else f"Name a field: {option}.NAME")
    return f"{option}: {first['msg'][0].lower()}{first['msg'][1:]}; got {first['input']!r:.80}"


def _explain_command(error: UnknownCommandError) -> str:
    unused = error.unused_tokens or [""]
    token, is_task = unused[0], _command(error) == "softlook train"
    known = [name for name in error.app or () if not name.startswith("-")]
    if is_task and (token.startswith("-") or _is_path(token)):
        return _explain_missing_task([one for one in unused if not one.startswith("-")])
    if Path(token).is_file():
        return f"{token} is a file, not a command. `softlook check {quote(Path(token))}` says what to train on it."
    if token.startswith("-"):
        close = get_close_matches(token, GLOBAL_OPTIONS, n=1)
        return f"unknown option {token}. " + (f"Did you mean {close[0]}?" if close else _see_help(error))
    kind = "task" if is_task else "command"
    synonyms = [name for name in COMMAND_SYNONYMS.get(token, ()) if name in known]
    close = synonyms or get_close_matches(token, known, n=1)
    hint = f'Did you mean "{close[0]}"?' if close else f"The {kind}s are {', '.join(sorted(known))}."
    return f'unknown {kind} "{token}". {hint}'


def _is_path(token: str) -> bool:
    return Path(token).exists() or bool(Path(token).suffix) or "/" in token


def _explain_missing_task(arguments: Sequence[str]) -> str:
    """Suggest a task for the files on the command line."""
    from softlook.cli.commands.check import guess_task, is_text  # noqa: PLC0415  (only after an error)

    files = tuple(Path(one) for one in arguments if Path(one).exists())
    if not files:
        unknown = f"{arguments[0]} does not exist, and " if arguments else ""
        return f"{unknown}the task is missing.\n{TRAIN_INTRODUCTION}"
    names = " ".join(map(quote, files))
    try:
        tasks = [guess_task(files)]
    except (ConfigError, DataError):
        tasks = ["TASK"]
    commands = [f"  softlook train {task} --data {names}" for task in tasks]
    commands += [] if is_text(files[0]) else [f"  softlook train table --data {names} --target COLUMN"]
    return "\n".join(("the task is missing. For this file:", *commands, f"  softlook check {names}"))


def _explain_missing(error: MissingArgumentError) -> str:
    assert error.argument is not None
    argument = error.argument
    positional = argument.index is not None and error.keyword is None
    name = argument.name.lstrip("-").upper() if positional else error.keyword or argument.name
    expected = f"{_command(error)} expects {name}" if positional else f"{name} expects a value"
    is_model = positional and name in MODEL_ARGUMENTS
    return f"{expected}. {'`softlook runs` lists your runs. ' * is_model}{_see_help(error)}"


def _see_help(error: CycloptsError) -> str:
    return f"`{_command(error)} --help` shows the arguments."


def _command(error: CycloptsError) -> str:
    """The command without its arguments."""
    return " ".join(("softlook", *(error.command_chain or ())))
