"""HTTP server for trained models, with an OpenAI-compatible API.

Names are imported on first use: most need extra packages, `pip install softlook[serve]`, and all but a few need torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from softlook.decode.sampling import SamplingParams as SamplingParams
    from softlook.serve.app import create_app as create_app
    from softlook.serve.engine.engine import Engine as Engine
    from softlook.serve.engine.request import EngineRequest as EngineRequest
    from softlook.serve.engine.request import ServerLimits as ServerLimits
    from softlook.serve.loaded_model import LoadedModel as LoadedModel
    from softlook.serve.loaded_model import load_model as load_model
    from softlook.serve.registry import ModelRegistry as ModelRegistry
    from softlook.serve.server import ServerConfig as ServerConfig
    from softlook.serve.server import run as run

LAZY = {
    "Engine": "softlook.serve.engine.engine",
    "EngineRequest": "softlook.serve.engine.request",
    "LoadedModel": "softlook.serve.loaded_model",
    "ModelRegistry": "softlook.serve.registry",
    "SamplingParams": "softlook.decode.sampling",
    "ServerConfig": "softlook.serve.server",
    "ServerLimits": "softlook.serve.engine.request",
    "create_app": "softlook.serve.app",
    "load_model": "softlook.serve.loaded_model",
    "run": "softlook.serve.server",
}


def __getattr__(name: str) -> Any:
    if name not in LAZY:
        raise AttributeError(f"module 'softlook.serve' has no attribute {name!r}")
    return getattr(import_module(LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *LAZY})
