"""The description of the API: complete, consistent, and what the answers are like."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from headrace.admin.openapi import openapi
from headrace.admin.resources import ALL_ROUTES
from headrace.admin.routes import PREFIX, AdminRoute
from headrace.testing import Broker

from .api import call
from .route_cases import CASES
from .test_matrix import names

DOCUMENT = openapi()


def operation(each: AdminRoute) -> dict[str, Any]:
    found: dict[str, Any] = DOCUMENT["paths"][PREFIX + each.plain_path][each.method.lower()]
    return found


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for each in value.values():
            yield from nodes(each)
    elif isinstance(value, list):
        for each in value:
            yield from nodes(each)


def test_every_route_is_described() -> None:
    described = {f"{method.upper()} {path}" for path, operations in DOCUMENT["paths"].items() for method in operations}
    assert described == {f"{each.method} {PREFIX}{each.plain_path}" for each in ALL_ROUTES}
    ids = [each["operationId"] for operations in DOCUMENT["paths"].values() for each in operations.values()]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("each", ALL_ROUTES, ids=names)
def test_an_operation(each: AdminRoute) -> None:
    found = operation(each)
    assert found["summary"].endswith("."), "the first line of the handler's docstring is a sentence"
    in_path = {parameter["name"] for parameter in found["parameters"] if parameter["in"] == "path"}
    assert in_path == set(re.findall(r"\{(\w+)\}", each.plain_path))
    wanted = set() if each.query is None else {field.encode_name for field in msgspec.structs.fields(each.query)}
    assert {parameter["name"] for parameter in found["parameters"] if parameter["in"] == "query"} == wanted
    assert ("requestBody" in found) is (each.body is not None or each.method in ("POST", "PUT", "PATCH"))
    assert str(each.needs) in found["description"]
    if each.answer is None and each.media_type == "application/json":
        assert "204" in found["responses"]


def test_every_reference_leads_somewhere_and_every_type_is_used() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    used = {node["$ref"].rpartition("/")[2] for node in nodes(DOCUMENT) if "$ref" in node}
    assert used == set(schemas)
    for name, schema in schemas.items():
        assert (
            schema.get("type") == "object" or "enum" in schema or "anyOf" in schema or "prefixItems" in str(schema)
        ), name


def test_it_is_served_without_a_login(monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker() as broker:
        served = call(broker.http_url, "GET", "/openapi.json")
        assert served.status == 200
        assert served.value["openapi"] == "3.1.0"
        assert served.value["paths"].keys() == DOCUMENT["paths"].keys()


def test_cases_have_the_types_that_are_described() -> None:
    for each in ALL_ROUTES:
        case = CASES[names(each)]
        if each.body is not None:
            msgspec.convert(case.body, each.body)
