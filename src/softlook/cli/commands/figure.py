"""`softlook figure`: pictures of attention as SVG, PNG or HTML."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from softlook.base.errors import ConfigError
from softlook.cli.console import CommandResult, OutputStream
from softlook.cli.options import DeviceOption

if TYPE_CHECKING:
    from softlook.lens.figures.figure import Figure

log = logging.getLogger("softlook.cli")
STDOUT = Path("/dev/stdout")
"""A hyphen."""
Kind = Literal["heads", "rollout", "statistics", "scores", "contributions", "alignment", "beams"]
Theme = Literal["auto", "light", "dark"]


def figure(
    name: Annotated[str | None, Parameter(help="picture of the gallery, or a run or model")] = None,
    text: Annotated[str | None, Parameter(help="text in quotes, for a figure of a model")] = None,
    /,
    *,
    out: Annotated[Path | None, Parameter(help="new file, .svg, .png or .html; - for SVG on stdout")] = None,
    kind: Annotated[Kind, Parameter(help="figure of a model")] = "heads",
    beams: Annotated[int, Parameter(help="beams of --kind beams")] = 2,
    theme: Annotated[Theme, Parameter(help="colors; auto: those that the reader prefers")] = "auto",
    all_to: Annotated[Path | None, Parameter(name="--all", help="write the whole gallery to this folder")] = None,
    list_names: Annotated[bool, Parameter(name="--list", help="list the pictures of the gallery")] = False,
    device: DeviceOption = "auto",
) -> CommandResult | None:
    """Draw a picture of the gallery, or the attention of a model for a text."""
    from softlook.recipes.inference.figures import GALLERY  # noqa: PLC0415  (imports torch)

    if list_names:
        return _list({one: (make.__doc__ or "").partition("\n")[0] for one, make in GALLERY.items()})
    if all_to is not None:
        all_to.mkdir(parents=True, exist_ok=True)
        for one, make in GALLERY.items():
            make().save(all_to / f"{one}.svg", theme=theme)
        return CommandResult(all_to, {"figures": list(GALLERY)})
    if name is None:
        raise ConfigError(
            "which picture? softlook figure --list shows their names; softlook figure RUN TEXT draws a model"
        )
    if text is None:
        if name not in GALLERY:
            raise ConfigError(
                f"no picture {name!r} in the gallery: softlook figure --list shows the names. "
                f'The figure of a model needs a text: softlook figure {name} "a text"'
            )
        return _write(GALLERY[name](), out or Path(f"{name}.svg"), theme)
    return _write(_of_model(name, text, kind, beams, device), out or Path(f"{kind}.svg"), theme)


def _of_model(name: str, text: str, kind: Kind, beams: int, device: str) -> "Figure":
    from softlook.recipes.inference.figures import run_figure  # noqa: PLC0415  (imports torch)
    from softlook.recipes.inference.pipeline import load_pipeline  # noqa: PLC0415

    return run_figure(load_pipeline(name, device=device), text, kind, num_beams=beams)


def _list(names: dict[str, str]) -> None:
    output, width = OutputStream(), max(map(len, names))
    for name, summary in names.items():
        if output.json:
            output.write_object({"name": name, "summary": summary})
        else:
            output.write_line(f"{name:{width}}  {summary}")
    output.flush()


def _write(drawn: "Figure", out: Path, theme: Theme) -> CommandResult | None:
    from softlook.weights.atomic_folder import check_not_exists, disk_errors  # noqa: PLC0415  (imports torch)

    if out == STDOUT:
        OutputStream().write_text(drawn.svg(theme))
        return None
    check_not_exists(out)
    with disk_errors("write", out):
        drawn.save(out, theme=theme)
    return CommandResult(out, {"title": drawn.title, "description": drawn.description})
