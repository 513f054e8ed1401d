"""A client of the registry, which sends requests as Confluent's clients do."""

import base64
import json
import ssl
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

TYPE = "application/vnd.schemaregistry.v1+json"
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
WITH_NOTE = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": "string", "default": ""}]}
RENAMED = {**ORDER, "fields": [{"name": "number", "type": "long"}]}


class Refusal(Exception):
    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class RegistryClient:
    """Sends requests as Confluent's clients do."""

    def __init__(self, url: str, user: str = "", password: str = "", ca: Path | None = None) -> None:
        self._url = url
        self._login = base64.b64encode(f"{user}:{password}".encode()).decode() if user else ""
        self._tls = None if ca is None else ssl.create_default_context(cafile=ca)

    def call(self, method: str, path: str, body: Any = None, kind: str = TYPE) -> Any:
        headers = {"Content-Type": kind, "Accept": TYPE}
        if self._login:
            headers["Authorization"] = f"Basic {self._login}"
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"{self._url}{path}", data, headers, method=method)
        try:
            with urlopen(request, timeout=60, context=self._tls) as answer:
                content = answer.read()
                return json.loads(content) if content else None
        except HTTPError as error:
            found = json.loads(error.read())
            raise Refusal(error.code, found["error_code"], found["message"]) from None

    def register(self, subject: str, schema: Any, kind: str = "AVRO", **more: Any) -> int:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        body = {"schema": text, "schemaType": kind, **more}
        return int(self.call("POST", f"/subjects/{quote(subject, safe='')}/versions", body)["id"])
