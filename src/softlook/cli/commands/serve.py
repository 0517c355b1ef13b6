"""`softlook serve`: serve models over HTTP."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from softlook.base.errors import ConfigError, DiskError
from softlook.cli.options import DeviceOption

if TYPE_CHECKING:
    from softlook.serve.loaded_model import AnyModel

log = logging.getLogger("softlook.cli")


def serve(
    *models: Annotated[
        str, Parameter(help="runs, checkpoints, saved estimators or Hugging Face folders; NAME=FOLDER sets the name")
    ],
    host: Annotated[str, Parameter(help="address to listen on; other than localhost requires a token")] = "127.0.0.1",
    port: Annotated[int, Parameter(help="port to listen on; 0 selects a free one")] = 8000,
    token: Annotated[
        str | None, Parameter(help="bearer token required on every route", env_var="SOFTLOOK_TOKEN", show_env_var=True)
    ] = None,
    token_file: Annotated[
        Path | None, Parameter(help="file that holds the token, which a list of processes then does not show")
    ] = None,
    allowed_hosts: Annotated[
        tuple[str, ...], Parameter(help="host names the server answers to, besides localhost", negative=())
    ] = (),
    device: DeviceOption = "auto",
    max_queue: Annotated[int, Parameter(help="sequences in the queue before requests get status 429")] = 1024,
    max_batch_size: Annotated[int, Parameter(help="sequences processed together")] = 64,
    kv_cache_gib: Annotated[
        float | None, Parameter(help="GiB for the KV cache of each model; default: a share of the free memory")
    ] = None,
    no_prefix_caching: Annotated[
        bool, Parameter(help="compute the beginning of every prompt again, although an earlier one had the same")
    ] = False,
    max_new_tokens: Annotated[int, Parameter(help="maximum number of new tokens per sequence")] = 4096,
    max_body_bytes: Annotated[int, Parameter(help="maximum size of a request")] = 1 << 20,
) -> None:
    """Serve models over HTTP with an OpenAI-compatible API, until Ctrl-C."""
    from softlook.serve.engine.request import ServerLimits  # noqa: PLC0415  (extras, and imports torch)
    from softlook.serve.loaded_model import model_names  # noqa: PLC0415
    from softlook.serve.registry import ModelRegistry  # noqa: PLC0415
    from softlook.serve.server import ServerConfig, run  # noqa: PLC0415

    if not models:
        raise ConfigError("no model given. Name a run: softlook serve runs/NAME. `softlook runs` lists them.")
    is_positive = min(max_queue, max_batch_size, max_new_tokens, max_body_bytes) >= 1
    if not is_positive or (kv_cache_gib is not None and kv_cache_gib <= 0) or not 0 <= port < 65536:
        raise ConfigError("limits must be above 0, and the port below 65,536")
    config = ServerConfig(host=host, port=port, token=read_token(token, token_file), allowed_hosts=allowed_hosts)
    limits = ServerLimits(
        max_queue=max_queue,
        max_batch_size=max_batch_size,
        kv_cache_gib=kv_cache_gib,
        prefix_caching=not no_prefix_caching,
        max_new_tokens=max_new_tokens,
        max_body_bytes=max_body_bytes,
    )
    loaded = [_load(folder, name, device) for name, folder in model_names(models).items()]
    run(ModelRegistry(loaded, limits), config, lambda url: log.info("Listening on %s (Ctrl-C to stop)", url))


def _load(folder: Path, name: str, device: str) -> "AnyModel":
    from softlook.recipes.inference.pipeline import find_folder  # noqa: PLC0415  (extras, and imports torch)
    from softlook.recipes.run_dir.layout import is_image_model  # noqa: PLC0415
    from softlook.serve.loaded_model import load_model, to_device  # noqa: PLC0415

    if _is_table(folder):
        from softlook.recipes.tabular.serving import load_table_for_serving  # noqa: PLC0415  (extras)

        loaded_table = load_table_for_serving(folder, name, device=device)
        table = loaded_table.table
        log.info("%s: %s, predicts %s", name, table.model_name, ", ".join(table.target))
        return loaded_table
    if is_image_model(folder):
        from softlook.recipes.images.serving import load_images_for_serving  # noqa: PLC0415  (extras)

        loaded_images = load_images_for_serving(folder, name, device=device)
        log.info("%s: ViT, classifies images into %s", name, ", ".join(loaded_images.images.labels))
        return loaded_images
    loaded = to_device(load_model(find_folder(folder), name), device)
    log.info("%s: %s, for %s", name, type(loaded.model).__name__, ", ".join(loaded.capabilities))
    return loaded


def _is_table(folder: Path) -> bool:
    """Whether a folder holds a run of `softlook train table`, or a saved estimator."""
    from softlook.recipes.config.tabular_schema import TabularConfig  # noqa: PLC0415
    from softlook.recipes.run_dir.layout import SETTINGS_FILE, load_run_config  # noqa: PLC0415  (imports torch)
    from softlook.weights.manifest import ESTIMATOR_FILE, best_checkpoint  # noqa: PLC0415

    if (folder / SETTINGS_FILE).is_file():
        return isinstance(load_run_config(folder), TabularConfig)
    return (best_checkpoint(folder) / ESTIMATOR_FILE).is_file()


def read_token(token: str | None, file: Path | None) -> str | None:
    """The token, from a file if there is one."""
    if file is None:
        return token
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise DiskError(f"the token file {file} cannot be read: {error}") from None
