"""GET /v1/models, /healthz and /metrics."""

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from softlook.serve.loaded_model import AnyModel, LoadedImageModel, LoadedModel
from softlook.serve.protocol import responses
from softlook.serve.protocol.parsing import ParsingRoute
from softlook.serve.protocol.responses import error_responses
from softlook.serve.registry import UnknownModelError
from softlook.serve.routes import COMMON_ERRORS, get_context, json_response

router = APIRouter(route_class=ParsingRoute)
PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"
ModelPath = Annotated[str, Path(min_length=1, max_length=128)]


@router.get("/healthz", response_model=responses.Health, responses=COMMON_ERRORS | {503: {"model": responses.Health}})
async def healthz(request: Request) -> Response:
    """Whether all models are healthy."""
    engines = {name: deployment.engine for name, deployment in get_context(request).registry.deployments.items()}
    states = {name: engine.error or ("ok" if engine.is_alive else "stopped") for name, engine in engines.items()}
    is_healthy = all(state == "ok" for state in states.values())
    health = responses.Health(status="ok" if is_healthy else "unhealthy", models=states)
    return json_response(health, 200 if is_healthy else 503)


@router.get("/metrics", responses=COMMON_ERRORS | {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}})
async def metrics(request: Request) -> Response:
    """Prometheus metrics."""
    return Response(get_context(request).metrics.render(), media_type=PROMETHEUS_TEXT)


@router.get("/v1/models", response_model=responses.ModelList, responses=COMMON_ERRORS)
async def list_models(request: Request) -> Response:
    """List the models."""
    deployments = get_context(request).registry.deployments.values()
    return json_response(responses.ModelList(data=[_card(deployment.loaded) for deployment in deployments]))


@router.get("/v1/models/{model}", response_model=responses.ModelCard, responses=COMMON_ERRORS | error_responses(404))
async def get_model(model: ModelPath, request: Request) -> Response:
    """Describe one model."""
    deployment = get_context(request).registry.deployments.get(model)
    if deployment is None:
        raise UnknownModelError(f"there is no model {model!r:.80}")
    return json_response(_card(deployment.loaded))


def _card(loaded: AnyModel) -> responses.ModelCard:
    card = responses.ModelCard(id=loaded.name, created=loaded.created, capabilities=list(map(str, loaded.capabilities)))
    if isinstance(loaded, LoadedModel):
        card.context = loaded.context
        return card
    if isinstance(loaded, LoadedImageModel):
        card.labels = loaded.images.labels
        return card
    table = loaded.table
    columns = [responses.ColumnCard(name=name, type=column_type) for name, column_type in table.columns.items()]
    card.table = responses.TableCard(target=list(table.target), columns=columns, classes=list(table.classes))
    return card
