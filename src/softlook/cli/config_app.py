"""Commands whose flags are the fields of a config: short names, defaults and advanced options."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from cyclopts import App, Group, Parameter
from cyclopts.argument import Argument, ArgumentCollection

from softlook.cli.options import OPTIONS, STYLE, format_default
from softlook.recipes.config.default_minutes import DEFAULT_MINUTES

SHORT_NAMES: dict[str, tuple[str, ...]] = {
    "optim.lr": ("--lr",),
    "optim.warmup": ("--warmup",),
    "optim.batch_size": ("--batch-size",),
    "batch.max_tokens": ("--batch-tokens",),
    "batch.max_length": ("--max-length",),
    "model.dropout": ("--dropout",),
    "training.max_steps": ("--max-steps", "--steps"),
    "training.max_minutes": ("--max-minutes", "--minutes"),
    "training.epochs": ("--epochs",),
    "training.device": ("--device",),
    "training.precision": ("--precision",),
    "training.seed": ("--seed",),
}
"""Short names of flags, by the dotted name of the field. The help shows the first one."""
COMMON_FIELDS = (
    *("data", "valid", "test", "source", "target", "text", "text_pair", "label", "problem", "next_sentence"),
    *("run_dir", "init_from", "trials", "max_minutes"),
    *("training.max_minutes", "training.max_steps", "epochs", "training.epochs"),
    *("ensemble", "optim.lr", "optim.batch_size", "batch.max_tokens", "batch.max_length"),
    *("training.device", "training.seed", "dry_run", "fresh"),
)
"""Fields that the help shows first, in this order. The others are advanced."""
SELECTED_FIELDS = {
    "eval_fraction",
    *("arch", "model.dim", "model.depth", "model.heads", "model.hidden", "model.dropout"),
    *("tokenizer.type", "tokenizer.vocab_size", "tokenizer.lowercase", "tokenizer.bpe_dropout"),
    *("batch.max_tokens", "batch.max_length", "batch.pad_to_multiple_of"),
    *("optim.lr", "optim.schedule", "optim.warmup", "optim.weight_decay"),
    *("training.max_steps", "training.max_minutes", "training.epochs", "training.evaluate_every"),
    *("training.save_every", "training.log_every", "training.ema_decay", "training.patience"),
    *("reg.label_smoothing", "reg.rdrop_alpha", "reg.word_dropout", "decode.eval_samples"),
}
"""Fields of text tasks whose values depend on the data and the device, unless they are set."""
SELECTED, OF_THE_PRESET, DETECTED = "selected for the data", "the preset's", "detected"
MINUTES_OF_TEXTS = f"at most {DEFAULT_MINUTES['cpu']:.0f} on a CPU, otherwise none"
PRESET_GROUPS = ("model", "optim", "training")
"""Groups of a table's config whose values are those of the preset, unless they are set."""
DEFAULT_MARKS = ("default: ", "by default ")
"""What introduces a default in the description of a field."""
ADVANCED = Group("Advanced", sort_key=8)
HELP_ALL = "--help-all"
HELP_HINT = "\n--help-all shows all options, with their names in config files."
_shows_all: ContextVar[bool] = ContextVar("shows_all", default=False)


@contextmanager
def showing_all_options() -> Iterator[None]:
    """Help inside the context includes the advanced options."""
    token = _shows_all.set(True)
    try:
        yield
    finally:
        _shows_all.reset(token)


class ConfigApp(App):
    """A command whose flags are the fields of a config."""

    def assemble_argument_collection(
        self, *, default_parameter: Parameter | None = None, parse_docstring: bool = False
    ) -> ArgumentCollection:
        """All arguments, with their short names; `parse_docstring` also describes them for the help."""
        arguments = super().assemble_argument_collection(
            default_parameter=default_parameter, parse_docstring=parse_docstring
        )
        taken = {name for argument in arguments for name in argument.names}
        for argument in arguments:
            short = SHORT_NAMES.get(field_name(argument), ())
            if short and short[0] not in taken:
                long = () if parse_docstring and not _shows_all.get() else argument.names
                _change(argument, name=(*(short[:1] if parse_docstring else short), *long))
        if parse_docstring:
            is_table = any(field_name(argument) == "preset" for argument in arguments)
            for argument in arguments:
                _describe(argument, is_table=is_table)
            arguments.sort(key=_help_order)
        return arguments


def config_command(name: str, function: Callable[..., Any], **texts: Any) -> ConfigApp:
    """A command that takes a config."""
    app = ConfigApp(name=name, default_parameter=STYLE, group_parameters=OPTIONS, help_epilogue=HELP_HINT, **texts)
    app.default(function)
    return app


def field_name(argument: Argument) -> str:
    """The dotted name of the field that an argument sets."""
    return ".".join(argument.keys)


def _describe(argument: Argument, *, is_table: bool) -> None:
    """Say what the default is, and move an option that few need to the advanced ones."""
    name, description = field_name(argument), argument.parameter.help or ""
    if description.endswith("."):  # presets are described in sentences
        description = description[0].lower() + description[1:-1]
    if name == "data" or (name == "target" and is_table):
        description, default = f"{description} (required)", ""
    elif name == "training.max_minutes" and not is_table:
        default = MINUTES_OF_TEXTS
    elif name in SELECTED_FIELDS and name.startswith("training.") and not is_table:
        description, default = description.partition("; default: ")[0], SELECTED  # the schema's is that of `fit`
    elif any(mark in description for mark in DEFAULT_MARKS):
        default = ""
    else:
        default = _default_text(name, argument.field_info.default, is_table=is_table)
    _change(argument, help=description, show_default=default or False)
    is_short = name not in SHORT_NAMES or SHORT_NAMES[name][0] in argument.names  # not so if another option has it
    if argument.show and not (name in COMMON_FIELDS and is_short):
        _change(argument, group=(ADVANCED,), show=_shows_all.get())


def _default_text(name: str, default: Any, *, is_table: bool) -> str:
    group, _, _ = name.rpartition(".")
    if is_table:
        is_preset = default is None and group in PRESET_GROUPS and name != "training.max_minutes"
        return OF_THE_PRESET if is_preset else format_default(default)
    if name in SELECTED_FIELDS:
        return SELECTED
    return DETECTED if name == "text" else format_default(default)


def _help_order(argument: Argument) -> int:
    name = field_name(argument)
    return COMMON_FIELDS.index(name) if name in COMMON_FIELDS else len(COMMON_FIELDS)


def _change(argument: Argument, **fields: Any) -> None:
    argument.parameter = Parameter.combine(argument.parameter, Parameter(**fields))
