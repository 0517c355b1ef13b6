"""Config resolution: flags, environment, TOML file, automatic values, defaults."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from softlook.base.errors import ConfigError
from softlook.recipes.config.schema import FILE_FIELDS, RunConfig, TextConfig

TextConfigT = TypeVar("TextConfigT", bound=TextConfig)
ConfigT = TypeVar("ConfigT", bound=RunConfig)
ENV_PREFIX = "SOFTLOOK_"


class ValueOrigin(StrEnum):
    """Where the value of a field comes from. Some origins carry a detail, as in "file run.toml"."""

    DEFAULT = "default"
    AUTO = "auto"
    """Selected for the data and the device."""
    ARGUMENT = "argument"
    FLAG = "flag"
    ENVIRONMENT = "environment"
    FILE = "file"

    def of(self, detail: object) -> str:
        """This origin with a detail.

        >>> ValueOrigin.FILE.of("run.toml")
        'file run.toml'
        """
        return f"{self.value} {detail}"


@dataclass(frozen=True)
class ConfigOverrides(Generic[ConfigT]):
    """Values set by the user, by dotted name, with the origin of each."""

    schema: type[ConfigT]
    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)

    def get(self, name: str) -> Any:
        """The value set by the user, or the schema's default."""
        return self.values[name] if name in self.values else default_values(self.schema)[name]


@dataclass(frozen=True)
class ResolvedConfig(Generic[ConfigT]):
    """A complete config, with the origin of every value."""

    config: ConfigT
    origins: dict[str, str]

    def values(self) -> dict[str, Any]:
        """All values as JSON types, by dotted name."""
        return flatten(self.config.model_dump(mode="json"))

    def rows(self) -> list[tuple[str, str, str]]:
        """Name, value and origin of every field that is set."""
        given = {name: value for name, value in self.values().items() if value not in (None, [])}
        return [(name, _format(value), self.origins[name]) for name, value in given.items()]

    def lines(self) -> list[str]:
        """A table of the values that differ from the defaults."""
        rows = [row for row in self.rows() if row[2] != ValueOrigin.DEFAULT]
        name_width, value_width = (max(len(row[i]) for row in rows) for i in (0, 1))
        return [f"  {name:{name_width}}  {value:{value_width}}  {origin}" for name, value, origin in rows]


ConfigLike = ConfigT | ConfigOverrides[ConfigT]
"""A config, or only the values that were set."""


def as_overrides(config: ConfigLike[ConfigT]) -> ConfigOverrides[ConfigT]:
    """The values that were set, from a config or given as such."""
    return config if isinstance(config, ConfigOverrides) else explicit_overrides(config)


def explicit_overrides(config: ConfigT, origin: str = ValueOrigin.ARGUMENT) -> ConfigOverrides[ConfigT]:
    """The values of a config that were set explicitly."""
    values = flatten(config.model_dump(exclude_unset=True))
    return ConfigOverrides(type(config), values, dict.fromkeys(values, origin))


def load_overrides(
    flags: ConfigT, *, config: Path | None = None, environ: Mapping[str, str] | None = None
) -> ConfigOverrides[ConfigT]:
    """Values from flags, the environment and a TOML file, in that order of precedence."""
    schema = type(flags)
    from_file = {} if config is None else _read_toml(config, schema)
    from_environ = _read_environment(environ or {}, schema)
    from_flags = explicit_overrides(flags, ValueOrigin.FLAG)
    origins = dict.fromkeys(from_file, ValueOrigin.FILE.of(config))
    for name in from_environ:
        origins[name] = ValueOrigin.ENVIRONMENT.of(f"{ENV_PREFIX}{name.replace('.', '__').upper()}")
    raw = ConfigOverrides(schema, from_file | from_environ | from_flags.values, origins | from_flags.origins)
    # An environment variable is a string: only the schema knows that "3" is a number.
    parsed = flatten(resolve_config(raw, {}).config.model_dump())
    return ConfigOverrides(schema, {name: parsed[name] for name in raw.values}, raw.origins)


def with_inferred(overrides: ConfigOverrides[ConfigT], inferred: Mapping[str, Any]) -> ConfigOverrides[ConfigT]:
    """The same overrides with values that follow from the data, where the user has set none; their origin is auto."""
    return ConfigOverrides(overrides.schema, {**inferred, **overrides.values}, overrides.origins)


def resolve_config(overrides: ConfigOverrides[ConfigT], auto: Mapping[str, Any]) -> ResolvedConfig[ConfigT]:
    """Merge overrides, automatic values and defaults, in that order of precedence, and validate the result."""
    values = {name: value for name, value in auto.items() if value is not None} | overrides.values
    origins: dict[str, str] = {
        name: overrides.origins.get(name, ValueOrigin.AUTO if name in values else ValueOrigin.DEFAULT)
        for name in default_values(overrides.schema)
    }
    try:
        config = overrides.schema.model_validate(unflatten(values))
    except ValidationError as error:
        raise ConfigError(_message(error, origins)) from None
    return ResolvedConfig(config, origins)


def default_values(schema: type[RunConfig]) -> dict[str, Any]:
    """Every field by its dotted name, with its default.

    >>> from softlook.recipes.config.schema import CausalLMConfig
    >>> default_values(CausalLMConfig)["optim.warmup"]
    400
    """
    return flatten(schema().model_dump())


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one mapping with dotted names.

    >>> flatten({"optim": {"lr": 0.1}, "arch": "gpt"})
    {'optim.lr': 0.1, 'arch': 'gpt'}
    """
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= flatten(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def unflatten(values: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `flatten`.

    >>> unflatten({"optim.lr": 0.1, "arch": "gpt"})
    {'optim': {'lr': 0.1}, 'arch': 'gpt'}
    """
    nested: dict[str, Any] = {}
    for name, value in values.items():
        *groups, last = name.split(".")
        group = nested
        for part in groups:
            group = group.setdefault(part, {})
        group[last] = value
    return nested


def suggest(name: str, known: Iterable[str]) -> str:
    """A suggestion for a misspelled name.

    >>> suggest("optim.lrr", ["optim.lr", "arch"])
    " Did you mean 'optim.lr'?"
    """
    close = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" Did you mean {close[0]!r}?" if close else ""


def get_value(config: BaseModel, name: str) -> Any:
    """A value by its dotted name."""
    for part in name.split("."):
        config = getattr(config, part)
    return config


def _read_toml(path: Path, schema: type[RunConfig]) -> dict[str, Any]:
    try:
        values = flatten(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist. --config expects a TOML file.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    known = default_values(schema)
    for name in values:
        if name not in known:
            raise ConfigError(f"{path}: unknown setting {name!r:.80}.{suggest(name, known)}")
    return {name: _as_tuple(name, value, known[name], path.parent) for name, value in values.items()}


def _as_tuple(name: str, value: Any, default: Any, folder: Path) -> Any:
    """A single string stands for a list of one; relative paths start at the folder of the TOML file."""
    if not isinstance(default, tuple):
        return value
    return tuple(
        folder / item if name in FILE_FIELDS else item for item in ([value] if isinstance(value, str) else value)
    )


def _read_environment(environ: Mapping[str, str], schema: type[RunConfig]) -> dict[str, Any]:
    known = default_values(schema)
    groups = {name.split(".")[0] for name in known if "." in name}
    values: dict[str, Any] = {}
    for variable, value in environ.items():
        name = variable.removeprefix(ENV_PREFIX).replace("__", ".").lower()
        if not variable.startswith(ENV_PREFIX):
            continue
        if name in known:
            items = (value,) if name in FILE_FIELDS else tuple(value.split())
            values[name] = items if isinstance(known[name], tuple) else value
        elif name.split(".")[0] in groups:
            raise ConfigError(f"environment variable {variable}: unknown setting {name!r:.80}.{suggest(name, known)}")
    return values


def _message(error: ValidationError, origins: Mapping[str, str]) -> str:
    first = error.errors()[0]
    name = ".".join(map(str, first["loc"]))
    known = next((known for known in origins if name == known or name.startswith(f"{known}.")), name)
    return f"{known}: {first['msg']}; got {first['input']!r:.80} ({origins.get(known, ValueOrigin.ARGUMENT)})"


def _format(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
