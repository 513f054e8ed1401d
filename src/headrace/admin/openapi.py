"""The description of the HTTP API as OpenAPI 3.1, made of the table of routes and the types of what goes in and out."""

import re
from functools import cache
from typing import Any

import msgspec
from msgspec.json import schema_components

from headrace.admin.routes import NO_PERMISSION, PREFIX, ROUTES, Access, AdminReply, AdminRequest, AdminRoute, route
from headrace.admin.streams import SSE
from headrace.version import version

_REFS = "#/components/schemas/{name}"
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
_PARAMETER = re.compile(r"\{(\w+)\}")


class Refusal(msgspec.Struct, frozen=True):
    """Why a request is refused."""

    error: str
    """A code for programs."""
    message: str
    """A sentence for people."""


@route("GET", "/openapi.json", needs=NO_PERMISSION, answer=dict[str, Any])
async def describe_api(_: AdminRequest) -> AdminReply:
    """This description of the API, as OpenAPI 3.1."""
    return AdminReply(openapi())


@cache
def openapi() -> dict[str, Any]:
    """The whole document."""
    routes = ROUTES
    types: list[Any] = [Refusal]
    for each in routes:
        types += [kind for kind in (each.query, each.body, each.answer) if kind is not None]
    schemas, components = schema_components(types, ref_template=_REFS)
    by_type = dict(zip(map(_key, types), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for each in sorted(routes, key=lambda each: each.plain_path):
        paths.setdefault(PREFIX + each.plain_path, {})[each.method.lower()] = _operation(each, by_type, components)
    queries = {_name(by_type[_key(each.query)]) for each in routes if each.query is not None}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headrace",
            "version": version(),
            "description": "Everything that the dashboard shows and does, with the permissions of the person who asks.",
        },
        "paths": paths,
        "components": {
            "schemas": {name: schema for name, schema in components.items() if name not in queries},
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "headrace_session_{port}",
                    "description": "Set by POST /api/v1/session; changes also need its token in X-CSRF-Token.",
                },
            },
        },
        "tags": [{"name": name} for name in sorted({_tag(each) for each in routes})],
    }


def _operation(each: AdminRoute, schemas: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    handler = each.handler
    found: dict[str, Any] = {
        "operationId": getattr(handler, "__name__", each.plain_path),
        "summary": each.summary,
        "description": f"Permission: {each.needs}{', or the own user' if each.owner else ''}.",
        "tags": [_tag(each)],
        "parameters": [*_path_parameters(each), *_query_parameters(each, schemas, components)],
        "responses": {**_success(each, schemas), "default": _refused()},
        "security": [{}] if each.needs.access is Access.OPEN else [{"basic": []}, {"session": []}],
    }
    if each.body is not None:
        content = {"application/json": {"schema": schemas[_key(each.body)]}}
        found["requestBody"] = {"required": True, "content": content}
    elif each.method in _WITH_BODY:
        found["requestBody"] = {"content": {"application/json": {}}, "description": "Empty, or null."}
    return found


def _success(each: AdminRoute, schemas: dict[str, Any]) -> dict[str, Any]:
    if each.media_type != "application/json":
        what = "Events" if each.media_type == SSE else "One JSON object on each line"
        return {"200": {"description": what, "content": {each.media_type: {"schema": {"type": "string"}}}}}
    if each.answer is None:
        return {"204": {"description": "Done"}}
    content = {"application/json": {"schema": schemas[_key(each.answer)]}}
    return {"2XX": {"description": each.summary or "Done", "content": content}}


def _refused() -> dict[str, Any]:
    schema = {"$ref": _REFS.format(name=Refusal.__name__)}
    return {"description": "Refused, with the reason", "content": {"application/json": {"schema": schema}}}


def _path_parameters(each: AdminRoute) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(each.plain_path)
    ]


def _query_parameters(each: AdminRoute, schemas: dict[str, Any], components: dict[str, Any]) -> list[dict[str, Any]]:
    if each.query is None:
        return []
    described = components[_name(schemas[_key(each.query)])]
    required = described.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": schema}
        for name, schema in described["properties"].items()
    ]


def _name(schema: dict[str, Any]) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


def _key(kind: Any) -> str:
    return str(kind)


def _tag(each: AdminRoute) -> str:
    return each.plain_path.split("/")[1].partition(".")[0]
