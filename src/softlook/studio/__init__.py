"""The studio: a page that shows the attention of a model, in the browser, in a notebook, or as one file.

Names are imported on first use: some need extra packages, `pip install softlook[serve]` or `softlook[notebook]`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from softlook.studio.app import create_app as create_app
    from softlook.studio.export import save_page as save_page
    from softlook.studio.figures import view_figure as view_figure
    from softlook.studio.live import LiveModel as LiveModel
    from softlook.studio.live import ModelInput as ModelInput
    from softlook.studio.notebook import StudioWidget as StudioWidget
    from softlook.studio.notebook import widget as widget
    from softlook.studio.recording import StudioTrace as StudioTrace
    from softlook.studio.security import Sessions as Sessions
    from softlook.studio.session import Studio as Studio

LAZY = {
    "LiveModel": "softlook.studio.live",
    "ModelInput": "softlook.studio.live",
    "Sessions": "softlook.studio.security",
    "Studio": "softlook.studio.session",
    "StudioTrace": "softlook.studio.recording",
    "StudioWidget": "softlook.studio.notebook",
    "create_app": "softlook.studio.app",
    "save_page": "softlook.studio.export",
    "view_figure": "softlook.studio.figures",
    "widget": "softlook.studio.notebook",
}


def __getattr__(name: str) -> Any:
    if name not in LAZY:
        raise AttributeError(f"module 'softlook.studio' has no attribute {name!r}")
    return getattr(import_module(LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *LAZY})
