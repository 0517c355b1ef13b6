"""Requests generated from the OpenAPI description: no server error, and every response conforms to it."""

from typing import Any

import hypothesis
import pytest
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from softlook.serve.app import create_app
from softlook.serve.engine.request import ServerLimits
from softlook.serve.registry import ModelRegistry
from tests.serve.small_tables import tables
from tests.serve.tiny_models import everything

REGISTRY = ModelRegistry([*everything(), *tables()], ServerLimits(max_new_tokens=20, max_body_bytes=200_000))
MODELS = {
    "/v1/completions": ["gpt", "chat"],
    "/v1/chat/completions": ["chat"],
    "/v1/translate": ["translate"],
    "/v1/classify": ["classify"],
    "/v1/embeddings": ["embed"],
    "/v1/tables/predict": ["people"],
}
CELLS: dict[str, Any] = {
    "age": {"type": ["number", "null"]},
    "work": {"type": ["string", "null"]},
    "zip": {"type": ["string", "integer"]},
    "member": {"type": ["boolean", "null"]},
    "size": {"enum": ["S", "M", "L", None]},
    "joined": {"type": "string", "format": "date"},
    "note": {"type": ["string", "null"]},
}
"""The values of a table's columns."""
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


def openapi_schema() -> Any:
    """The description with the valid model names of each route: generated names would all be rejected."""
    app = create_app(REGISTRY, allowed_hosts=("testserver",))
    found = app.openapi()
    for path, names in MODELS.items():
        body = found["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        name = body["$ref"].rpartition("/")[2]
        found["components"]["schemas"][name]["properties"]["model"]["enum"] = [*names, "nobody"]
    rows = found["components"]["schemas"]["PredictionRequest"]["properties"]["rows"]["anyOf"][0]
    rows["items"] |= {"properties": CELLS, "additionalProperties": False}
    return schemathesis.openapi.from_asgi("/openapi.json", app)


SCHEMA = openapi_schema()
COUNT: list[int] = []
Health = hypothesis.HealthCheck
SUPPRESSED = [Health.too_slow, Health.filter_too_much, Health.data_too_large]


def check(case: Any) -> None:
    COUNT.append(1)
    response = case.call()
    case.validate_response(response, checks=CHECKS)
    assert all(
        deployment.engine.is_alive and not deployment.engine.stats.errors
        for deployment in REGISTRY.deployments.values()
    )


@SCHEMA.parametrize()
@hypothesis.settings(max_examples=20, deadline=None, suppress_health_check=SUPPRESSED)
def test_every_response_conforms_to_the_openapi_description(case: Any) -> None:
    check(case)


@pytest.mark.slow
@SCHEMA.parametrize()
@hypothesis.settings(max_examples=150, deadline=None, suppress_health_check=SUPPRESSED)
def test_a_thousand_responses_conform_to_the_openapi_description(case: Any) -> None:
    check(case)


@pytest.mark.slow
def test_more_than_a_thousand_requests_were_sent() -> None:
    assert len(COUNT) > 1000
