"""An Iceberg REST catalog for tests, as far as pyiceberg asks: HTTP in front of pyiceberg's own catalog in SQLite."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
)
from pyiceberg.table import CommitTableRequest

_CODES: dict[type[Exception], int] = {
    NoSuchTableError: 404,
    NoSuchNamespaceError: 404,
    NamespaceAlreadyExistsError: 409,
    CommitFailedException: 409,
}


class _Handler(BaseHTTPRequestHandler):
    catalog: SqlCatalog

    def log_message(self, *_: object) -> None:
        pass

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        address = urlsplit(self.path)
        parts = [unquote(each) for each in address.path.removeprefix("/v1/").split("/")]
        try:
            code, answer = 200, self._answer(parts, parse_qs(address.query), body)
        except tuple(_CODES) as error:
            code = next(code for kind, code in _CODES.items() if isinstance(error, kind))
            answer = {"error": {"message": str(error), "type": type(error).__name__, "code": code}}
        data = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_POST = do_HEAD = _serve

    def _answer(self, parts: list[str], query: dict[str, list[str]], body: bytes) -> Any:
        catalog = self.catalog
        if parts == ["config"]:
            return {"defaults": {}, "overrides": {}}
        if parts == ["namespaces"]:
            if self.command == "POST":
                name = json.loads(body)["namespace"]
                catalog.create_namespace(tuple(name))
                return {"namespace": name, "properties": {}}
            parent = tuple(query["parent"][0].split("\x1f")) if "parent" in query else ()
            return {"namespaces": catalog.list_namespaces(parent)}
        namespace = tuple(parts[1].split("\x1f"))
        if len(parts) == 2:
            return {"namespace": namespace, "properties": catalog.load_namespace_properties(namespace)}
        if len(parts) == 3 and self.command == "GET":
            found = catalog.list_tables(namespace)
            return {"identifiers": [{"namespace": each[:-1], "name": each[-1]} for each in found]}
        if len(parts) == 3:
            return self._create(namespace, body)
        name = (*namespace, parts[3])
        if self.command == "POST":
            request = CommitTableRequest.model_validate_json(body)
            table: Any = SimpleNamespace(name=lambda: name)
            return catalog.commit_table(table, request.requirements, request.updates).model_dump_json(by_alias=True)
        loaded = catalog.load_table(name)
        return _table(loaded.metadata, loaded.metadata_location)

    def _create(self, namespace: tuple[str, ...], body: bytes) -> str:
        request = CreateTableRequest.model_validate_json(body)
        assert request.stage_create, "pyiceberg makes partitioned tables in a transaction"
        staged = self.catalog._create_staged_table(
            (*namespace, request.name),
            request.table_schema,
            request.location,
            properties=request.properties,
        )
        return _table(staged.metadata, None)


def _table(metadata: Any, location: str | None) -> str:
    inner = metadata.model_dump_json(by_alias=True, exclude_none=True)
    return f'{{"metadata-location": {json.dumps(location)}, "metadata": {inner}, "config": {{}}}}'


@contextmanager
def rest_catalog(folder: Path) -> Iterator[str]:
    """Its address."""
    catalog = SqlCatalog("server", uri=f"sqlite:///{folder / 'server.db'}", warehouse=f"file://{folder}")
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"catalog": catalog}))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        catalog.engine.dispose()
