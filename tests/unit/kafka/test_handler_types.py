"""Handlers are typed with kio's classes of the newest version that they serve."""

import inspect
import re
from typing import Any

import pytest
from kio.schema.index import api_key_map

import headrace.kafka.handlers  # noqa: F401  registers every API
from headrace.kafka.dispatch import APIS, Api
from headrace.protocol.produce_request import read_produce_request

READ_BY_HAND = {read_produce_request}


@pytest.mark.parametrize("api", [api for api in APIS.values() if api.read not in READ_BY_HAND], ids=lambda api: api.key)
def test_a_request_has_the_type_of_the_newest_version(api: Api[Any, Any]) -> None:
    source = inspect.getsource(inspect.getmodule(api.handler))  # type: ignore[arg-type]
    newest = f"kio.schema.{api_key_map[api.key]}.v{api.max_version}.request"
    (_, request) = inspect.signature(api.handler).parameters.values()
    assert re.search(rf"from {re.escape(newest)} import [^)]*\b{request.annotation}\b", source)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.key)
def test_no_signature_has_the_type_any(api: Api[Any, Any]) -> None:
    module = inspect.getmodule(api.handler)
    assert module is not None
    functions = [
        each for _, each in inspect.getmembers(module, inspect.isfunction) if each.__module__ == module.__name__
    ]
    signatures = {each.__name__: str(inspect.signature(each)) for each in functions}
    assert {name: signature for name, signature in signatures.items() if re.search(r"\bAny\b", signature)} == {}
