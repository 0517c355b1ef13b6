"""Requests made up from the server's own description: nothing breaks, and nothing is answered that it does not say."""

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
from softlook.serve.limits import ServerLimits
from softlook.serve.registry import ModelRegistry
from tests.serve.small_tables import tables
from tests.serve.tiny_models import everything

HALL = ModelRegistry([*everything(), *tables()], ServerLimits(max_new_tokens=20, max_body_bytes=200_000))
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
"""What the columns of a table take."""
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


def described() -> Any:
    """The description, in which each page names the models that it is for: made-up names would all be refused."""
    app = create_app(HALL, allowed_hosts=("testserver",))
    found = app.openapi()
    for path, names in MODELS.items():
        body = found["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        name = body["$ref"].rpartition("/")[2]
        found["components"]["schemas"][name]["properties"]["model"]["enum"] = [*names, "nobody"]
    rows = found["components"]["schemas"]["PredictionRequest"]["properties"]["rows"]["anyOf"][0]
    rows["items"] |= {"properties": CELLS, "additionalProperties": False}
    return schemathesis.openapi.from_asgi("/openapi.json", app)


SCHEMA = described()
COUNT: list[int] = []
Health = hypothesis.HealthCheck
PATIENT = [Health.too_slow, Health.filter_too_much, Health.data_too_large]


def check(case: Any) -> None:
    COUNT.append(1)
    response = case.call()
    case.validate_response(response, checks=CHECKS)
    assert all(
        deployment.engine.is_alive and not deployment.engine.stats.errors for deployment in HALL.deployments.values()
    )


@SCHEMA.parametrize()
@hypothesis.settings(max_examples=20, deadline=None, suppress_health_check=PATIENT)
def test_whatever_is_asked_is_answered_as_described(case: Any) -> None:
    check(case)


@pytest.mark.slow
@SCHEMA.parametrize()
@hypothesis.settings(max_examples=150, deadline=None, suppress_health_check=PATIENT)
def test_whatever_is_asked_more_than_a_thousand_times_is_answered_as_described(case: Any) -> None:
    check(case)


@pytest.mark.slow
def test_there_were_more_than_a_thousand() -> None:
    assert len(COUNT) > 1000
