"""The studio: a page that shows the attention of a model, in the browser, in a notebook, or as one file.

Names that need extra packages are imported on first use: `pip install softlook[serve]`, `softlook[notebook]`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from softlook.studio.export import save_page as save_page
from softlook.studio.live import LiveModel as LiveModel
from softlook.studio.live import ModelInput as ModelInput
from softlook.studio.recording import StudioTrace as StudioTrace
from softlook.studio.session import Studio as Studio

if TYPE_CHECKING:
    from softlook.studio.app import create_app as create_app
    from softlook.studio.notebook import StudioWidget as StudioWidget
    from softlook.studio.notebook import widget as widget
    from softlook.studio.security import Sessions as Sessions

LAZY = {
    "Sessions": "softlook.studio.security",
    "StudioWidget": "softlook.studio.notebook",
    "create_app": "softlook.studio.app",
    "widget": "softlook.studio.notebook",
}


def __getattr__(name: str) -> Any:
    if name not in LAZY:
        raise AttributeError(f"module 'softlook.studio' has no attribute {name!r}")
    return getattr(import_module(LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *LAZY})
