"""Where values come from: flags over the environment over a file over what is chosen over defaults."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from softlook.base.errors import ConfigError
from softlook.recipes.settings import FILES, Begun, Task

Schema = TypeVar("Schema", bound=Task)
AnySchema = TypeVar("AnySchema", bound=Begun)
PREFIX = "SOFTLOOK_"
DEFAULT, CHOSEN, FLAG, GIVEN = "default", "chosen for the data", "flag", "given"
ENVIRONMENT, FILE = "environment", "file"


@dataclass(frozen=True)
class Told(Generic[AnySchema]):
    """What somebody said, by full name, and where each value was said."""

    schema: type[AnySchema]
    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)

    def get(self, name: str) -> Any:
        """A value that was told, or the schema's default."""
        return self.values[name] if name in self.values else defaults(self.schema)[name]


@dataclass(frozen=True)
class Settled(Generic[AnySchema]):
    """All values, and where each came from."""

    settings: AnySchema
    origins: dict[str, str]

    def values(self) -> dict[str, Any]:
        """All values as JSON knows them, by full name."""
        return flat(self.settings.model_dump(mode="json", by_alias=True))

    def rows(self) -> list[tuple[str, str, str]]:
        """Every value with its origin; what is not set at all is left out."""
        given = {name: value for name, value in self.values().items() if value not in (None, [])}
        return [(name, _shown(value), self.origins[name]) for name, value in given.items()]

    def lines(self) -> list[str]:
        """What is not as usual, as a table."""
        rows = [row for row in self.rows() if row[2] != DEFAULT]
        wide, deep = (max(len(row[i]) for row in rows) for i in (0, 1))
        return [f"  {name:{wide}}  {value:{deep}}  {origin}" for name, value, origin in rows]


def told(asked: AnySchema, origin: str = GIVEN) -> Told[AnySchema]:
    """What was said in Python, or by flags: only what was really said."""
    values = flat(asked.model_dump(exclude_unset=True, by_alias=True))
    return Told(type(asked), values, dict.fromkeys(values, origin))


def gather(
    asked: AnySchema, *, config: Path | None = None, environ: Mapping[str, str] | None = None
) -> Told[AnySchema]:
    """What was said by flags (`asked`), in the environment and in a TOML file; the first goes before the others."""
    schema = type(asked)
    from_file = {} if config is None else _read(config, schema)
    from_environ = _environment(environ or {}, schema)
    from_flags = told(asked, FLAG)
    origins = dict.fromkeys(from_file, f"{FILE} {config}")
    origins |= {name: f"{ENVIRONMENT} {PREFIX}{name.replace('.', '__').upper()}" for name in from_environ}
    raw = Told(schema, from_file | from_environ | from_flags.values, origins | from_flags.origins)
    # A variable is a string, whatever is meant by it: only the schema knows that "3" is a number.
    sound = flat(settle(raw, {}).settings.model_dump(by_alias=True))
    return Told(schema, {name: sound[name] for name in raw.values}, raw.origins)


def settle(asked: Told[AnySchema], chosen: Mapping[str, Any]) -> Settled[AnySchema]:
    """What was told, then what was chosen, then the defaults: checked as a whole."""
    values = {name: value for name, value in chosen.items() if value is not None} | asked.values
    origins = {name: asked.origins.get(name, CHOSEN if name in values else DEFAULT) for name in defaults(asked.schema)}
    try:
        settings = asked.schema.model_validate(nested(values))
    except ValidationError as fault:
        raise ConfigError(_fault(fault, origins)) from None
    return Settled(settings, origins)


def defaults(schema: type[Begun]) -> dict[str, Any]:
    """Every name there is, with its default.

    >>> from softlook.recipes.settings import Lm
    >>> defaults(Lm)["optim.schedule"]
    'inverse_root'
    """
    return flat(schema().model_dump(by_alias=True))


def flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Nested names as one word each.

    >>> flat({"optim": {"lr": 0.1}, "model": "gpt"})
    {'optim.lr': 0.1, 'model': 'gpt'}
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= flat(value, f"{before}{name}.") if isinstance(value, Mapping) else {f"{before}{name}": value}
    return found


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """And back again.

    >>> nested({"optim.lr": 0.1, "model": "gpt"})
    {'optim': {'lr': 0.1}, 'model': 'gpt'}
    """
    made: dict[str, Any] = {}
    for name, value in values.items():
        *groups, last = name.split(".")
        place = made
        for group in groups:
            place = place.setdefault(group, {})
        place[last] = value
    return made


def meant(name: str, known: Iterable[str]) -> str:
    """The name that somebody may have meant.

    >>> meant("optim.lrr", ["optim.lr", "model"])
    " Did you mean 'optim.lr'?"
    """
    close = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" Did you mean {close[0]!r}?" if close else ""


def _read(config: Path, schema: type[Begun]) -> dict[str, Any]:
    try:
        values = flat(tomllib.loads(config.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise ConfigError(f"{config} is not there. --config names a TOML file with settings.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as fault:
        raise ConfigError(f"{config} is not TOML: {fault}") from None
    known = defaults(schema)
    for name in values:
        if name not in known:
            raise ConfigError(f"{config}: there is no setting {name!r:.80}.{meant(name, known)}")
    return {name: _listed(name, value, known[name], config.parent) for name, value in values.items()}


def _listed(name: str, value: Any, default: Any, folder: Path) -> Any:
    """One may stand for a list of them, and paths in a file are counted from where the file lies."""
    if not isinstance(default, tuple):
        return value
    return tuple(folder / one if name in FILES else one for one in ([value] if isinstance(value, str) else value))


def _environment(environ: Mapping[str, str], schema: type[Begun]) -> dict[str, Any]:
    known = defaults(schema)
    groups = {name.split(".")[0] for name in known if "." in name}
    found: dict[str, Any] = {}
    for variable, value in environ.items():
        name = variable.removeprefix(PREFIX).replace("__", ".").lower()
        if not variable.startswith(PREFIX):
            continue
        if name in known:
            several = (value,) if name in FILES else tuple(value.split())
            found[name] = several if isinstance(known[name], tuple) else value
        elif name.split(".")[0] in groups:
            raise ConfigError(f"the environment sets {variable}: there is no setting {name!r:.80}.{meant(name, known)}")
    return found


def _fault(fault: ValidationError, origins: Mapping[str, str]) -> str:
    first = fault.errors()[0]
    name = ".".join(map(str, first["loc"]))
    known = next((known for known in origins if name == known or name.startswith(f"{known}.")), name)
    return f"{known}: {first['msg']}; {first['input']!r:.80} came ({origins.get(known, GIVEN)})"


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def group_of(settings: BaseModel, name: str) -> Any:
    """A value by its full name."""
    for part in name.split("."):
        settings = getattr(settings, part)
    return settings
