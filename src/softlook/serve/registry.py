"""Registry of the deployed models."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

import torch
from torch import Tensor

from softlook.base.errors import DataError
from softlook.models import GPT, Llama, TextEncoder
from softlook.serve.engine.continuous_batcher import ContinuousBatcher
from softlook.serve.engine.engine import Engine
from softlook.serve.engine.kv_cache import cache_capacity
from softlook.serve.engine.request import ServerLimits
from softlook.serve.engine.scheduler import Scheduler
from softlook.serve.engine.static_batcher import Encode, EncoderBatcher, StaticBatcher, TableBatcher
from softlook.serve.loaded_model import ROUTES, AnyModel, Capability, LoadedImageModel, LoadedModel, LoadedTable

Loaded = TypeVar("Loaded", bound=AnyModel, covariant=True)
TABLE_ROWS_PER_SEQUENCE = 4
"""Table rows that count as one sequence of a batch: a row has tens of tokens, all processed at once."""


class UnknownModelError(DataError):
    """No model has this name."""


@dataclass(frozen=True)
class Deployment(Generic[Loaded]):
    """A model and its engine."""

    loaded: Loaded
    engine: Engine


AnyDeployment = Deployment[AnyModel]


class ModelRegistry:
    """The models of a server by name, each with an engine."""

    def __init__(self, models: Sequence[AnyModel], limits: ServerLimits | None = None) -> None:
        self.limits = ServerLimits() if limits is None else limits
        num_caches = sum(isinstance(one, LoadedModel) and not isinstance(one.model, TextEncoder) for one in models)
        self.deployments = {one.name: self._deploy(one, num_caches) for one in models}

    def get(self, name: str, capability: Capability) -> Deployment[LoadedModel]:
        """The text model of this name, if it has the capability."""
        return cast("Deployment[LoadedModel]", self._find(name, capability))

    def get_table(self, name: str) -> Deployment[LoadedTable]:
        """The table model of this name."""
        return cast("Deployment[LoadedTable]", self._find(name, "tables"))

    def get_images(self, name: str) -> Deployment[LoadedImageModel]:
        """The image model of this name."""
        return cast("Deployment[LoadedImageModel]", self._find(name, "images"))

    def close(self) -> None:
        """Stop all engines."""
        for deployment in self.deployments.values():
            deployment.engine.stop()
        for deployment in self.deployments.values():
            deployment.engine.close()

    def _deploy(self, loaded: AnyModel, num_caches: int) -> AnyDeployment:
        scheduler = scheduler_for(loaded, self.limits, num_caches)
        return Deployment(loaded, Engine(scheduler, max_queue=self.limits.max_queue, name=loaded.name))

    def _find(self, name: str, capability: Capability) -> AnyDeployment:
        deployment = self.deployments.get(name)
        if deployment is None:
            raise UnknownModelError(f"there is no model {name!r:.80}; available: {', '.join(self.deployments)}")
        capabilities = deployment.loaded.capabilities
        if capability not in capabilities:
            supported = ", ".join(capabilities)
            reason = " It has no chat template." if capability == "chat" and supported == "completions" else ""
            route = ROUTES[capabilities[0]]
            raise DataError(f"{name} does not support {capability}, only {supported}.{reason} Use {route}")
        return deployment


def scheduler_for(loaded: AnyModel, limits: ServerLimits, num_caches: int = 1) -> Scheduler:
    """The scheduler of a model; `num_caches` models share the free memory."""
    if isinstance(loaded, LoadedTable):
        return TableBatcher(loaded.table, max_rows=TABLE_ROWS_PER_SEQUENCE * limits.max_batch_size)
    if isinstance(loaded, LoadedImageModel):
        return TableBatcher(loaded.images, max_rows=limits.max_batch_size)
    model = loaded.model
    if isinstance(model, TextEncoder):
        return EncoderBatcher(model, _encoder(model), max_requests=limits.max_batch_size)
    positions = cache_capacity(model, limits.kv_cache_gib, num_caches)
    if isinstance(model, GPT | Llama):
        return ContinuousBatcher(
            model,
            max_requests=limits.max_batch_size,
            max_positions=positions,
            prefix_caching=limits.prefix_caching,
        )
    # half: a step of these caches copies what it extends
    return StaticBatcher(model, max_requests=limits.max_batch_size, max_positions=max(positions // 2, 1))


def _encoder(model: TextEncoder) -> Encode:
    """The model; of token vectors, their normalized mean."""
    num_types = getattr(model.config, "token_types", 2)  # 0: the model has no token types

    def encode(ids: Tensor, mask: Tensor, token_types: Tensor) -> Tensor:
        types = token_types.clamp(max=num_types - 1) if num_types else None
        output = cast("Tensor", model(ids, padding_mask=mask, token_types=types))
        if model.config.head != "hidden_states":
            return output
        states = output.masked_fill(~mask[..., None], 0.0)
        return torch.nn.functional.normalize(states.sum(1) / mask.sum(1, keepdim=True), dim=-1)

    return encode
