"""A schema registry with Confluent's REST protocol: the broker's own, or any other. Used on the driver only.

    SchemaRegistry("http://registry:8081")            # anything that speaks the protocol; user and password in the URL

Every request has a timeout and is tried three times, at each address; then `RegistryUnavailable` is raised, which fails
the pipeline and not a single value.
"""

import base64
import json
import re
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from http.client import HTTPException, HTTPMessage
from typing import IO, Any, NamedTuple

from headrace.config.address import is_loopback
from headrace.config.credentials import Credentials
from headrace.model.errors import HeadraceError
from headrace.pipelines.values.schemas import WriterSchema, key_text
from headrace.pipelines.values.types import SchemaError
from headrace.schemas.payload.frames import SchemaKey
from headrace.security.tls.client_context import credentials_context

_ATTEMPTS = 3
_PAUSE_S = 0.2
_MAX_RESPONSE_BYTES = 16 * 1024 * 1024
_MAX_REFERENCES = 200
_MAX_VERSIONS = 100
_DESCRIPTION = re.compile(r"description:'(.+?)'[,}]")
_TYPE = "application/vnd.schemaregistry.v1+json"


class RegistryUnavailable(HeadraceError):
    """A request to the schema registry failed."""


class IncompatibleColumns(SchemaError):
    """The registry refuses a schema, because readers of the earlier ones could not go on with it."""


class VersionedSchema(NamedTuple):
    """A version of a subject."""

    id: int
    version: int
    schema: WriterSchema


class SchemaRegistry:
    """A schema registry at one or several addresses, any of which answers."""

    def __init__(
        self, urls: str | Sequence[str], *, credentials: Credentials | None = None, timeout_s: float = 10.0
    ) -> None:
        """`credentials` are sent over TLS, or to this machine. Raises `SchemaError` for what is no address."""
        self._sites = [_Site(each, credentials) for each in ([urls] if isinstance(urls, str) else urls)]
        self._timeout_s = timeout_s

    @property
    def address(self) -> str:
        return self._sites[0].base

    def by_id(self, schema_id: SchemaKey) -> WriterSchema | None:
        """The schema of an id or a GUID with its references; None if the registry does not have it."""
        kind = "ids" if isinstance(schema_id, int) else "guids"
        answer = self._get(f"/schemas/{kind}/{schema_id}")
        return None if answer is None else self._with_references(answer, f"the schema of {key_text(schema_id)}")

    def latest(self, subject: str) -> VersionedSchema:
        """The newest version of a subject; `SchemaError` if there is none."""
        found = self.find(subject)
        if found is None:
            raise SchemaError(
                f"the registry at {self.address} has no subject {subject}: register its schema, or name another subject"
            )
        return found

    def find(self, subject: str, version: int | None = None) -> VersionedSchema | None:
        """A version of a subject, or the newest; None if there is none."""
        answer = self._get(f"/subjects/{_quoted(subject)}/versions/{version or 'latest'}")
        if answer is None:
            return None
        what = f"version {version} of {subject}" if version else f"the newest schema of {subject}"
        return VersionedSchema(
            int(answer.get("id", 0)), int(answer.get("version", 0)), self._with_references(answer, what)
        )

    def versions(self, subject: str) -> Iterator[VersionedSchema]:
        """The newest versions of a subject, at most a hundred."""
        numbers = self._call("GET", f"/subjects/{_quoted(subject)}/versions")
        if not isinstance(numbers, list):
            return
        for number in numbers[-_MAX_VERSIONS:]:
            found = self.find(subject, int(number))
            if found is not None:
                yield found

    def before(self, subject: str, version: int) -> VersionedSchema | None:
        """The version of a subject before this one; None if there is none."""
        numbers = self._call("GET", f"/subjects/{_quoted(subject)}/versions")
        earlier = [int(each) for each in numbers if int(each) < version] if isinstance(numbers, list) else []
        return self.find(subject, max(earlier)) if earlier else None

    def register(self, subject: str, schema: WriterSchema) -> int:
        """Register a schema, unless it is there; its id. Raises `IncompatibleColumns`, or `SchemaError`."""
        body = {"schema": schema.text, "schemaType": schema.kind}
        answer = self._call("POST", f"/subjects/{_quoted(subject)}/versions?normalize=true", body)
        if not isinstance(answer, dict) or not isinstance(answer.get("id"), int):
            raise RegistryUnavailable(f"the registry at {self.address} answered without an id for {subject}")
        return int(answer["id"])

    def _with_references(self, answer: Mapping[str, Any], what: str) -> WriterSchema:
        """The schema with its references, each before the schemas that use it."""
        found: dict[tuple[str, int], tuple[str, str]] = {}
        text = self._collect(answer, what, found)
        return WriterSchema(text, tuple(found.values()), str(answer.get("schemaType", "AVRO")))

    def _collect(
        self,
        answer: Mapping[str, Any],
        what: str,
        found: dict[tuple[str, int], tuple[str, str]],
        inside: tuple[tuple[str, int], ...] = (),
    ) -> str:
        for each in answer.get("references") or ():
            key = str(each["subject"]), int(each["version"])
            if key in found:
                continue
            if key in inside:
                raise SchemaError(f"{what} refers to version {key[1]} of {key[0]}, which refers to it")
            if len(found) + len(inside) >= _MAX_REFERENCES:
                raise SchemaError(f"{what} refers to more than {_MAX_REFERENCES} others")
            referred = self._get(f"/subjects/{_quoted(key[0])}/versions/{key[1]}")
            if referred is None:
                raise SchemaError(f"{what} refers to version {key[1]} of {key[0]}, which the registry does not have")
            text = self._collect(referred, f"version {key[1]} of {key[0]}", found, (*inside, key))
            found[key] = (str(each.get("name", key[0])), text)
        whole = answer.get("schema")
        if not isinstance(whole, str):
            raise RegistryUnavailable(f"the registry at {self.address} answered without a schema for {what}")
        return whole

    def _get(self, path: str) -> dict[str, Any] | None:
        """The response; None for 404."""
        answer = self._call("GET", path)
        if answer is not None and not isinstance(answer, dict):
            raise RegistryUnavailable(
                f"the registry at {self.address} answered {path} with something else than an object"
            )
        return answer

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        reason = ""
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(_PAUSE_S * attempt)
            for site in self._sites:
                try:
                    return site.call(method, path, body, self._timeout_s)
                except urllib.error.HTTPError as error:
                    reason = self._refused(path, error)
                except (OSError, HTTPException, ValueError) as error:
                    reason = str(getattr(error, "reason", error)) or type(error).__name__
        raise RegistryUnavailable(f"the request to the schema registry at {self.address} for {path} failed: {reason}")

    def _refused(self, path: str, error: urllib.error.HTTPError) -> str:
        """The reason, if another attempt may succeed; raises where it cannot."""
        with error:
            message = _message(error)
        if error.code == 409:
            found = _DESCRIPTION.findall(message)
            raise IncompatibleColumns("; ".join(found[:3]) or message[:300])
        if error.code == 422:
            raise SchemaError(f"the registry at {self.address} refuses the schema: {message}")
        reason = f"it answered {error.code} {message}"
        if error.code in (401, 403):
            raise RegistryUnavailable(
                f"the request to the schema registry at {self.address} for {path} failed: {reason}"
            )
        return reason


class _Site:
    """One address of a registry."""

    def __init__(self, url: str, credentials: Credentials | None) -> None:
        try:
            parts = urllib.parse.urlsplit(url)
        except ValueError as error:
            raise SchemaError(f"the registry is not an address: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            # Without the text itself, which may have a password.
            raise SchemaError("the registry is not an address: one begins with http:// or https:// and a host")
        if any("@" in each for each in (parts.path, parts.query, parts.fragment)):
            # What was meant as the password would be shown as a part of the host and the path.
            raise SchemaError("the password in the address of the registry has one of / ? #: write %2F, %3F, %23")
        host = parts.netloc.rpartition("@")[2]
        self.base = f"{parts.scheme}://{host}{parts.path.rstrip('/')}"
        self._headers = {"Accept": f"{_TYPE}, application/json", "Content-Type": _TYPE}
        context: ssl.SSLContext | None = None
        user, password = parts.username, urllib.parse.unquote(parts.password or "")
        if credentials is not None:
            if parts.scheme == "https":
                context = credentials_context(credentials)
            if credentials.user and credentials.password:
                if parts.scheme != "https" and not is_loopback(parts.hostname):
                    raise RegistryUnavailable(f"{self.base} is not encrypted: a password is sent over https only")
                user, password = urllib.parse.quote(credentials.user), credentials.password
        if user is not None:
            pair = f"{urllib.parse.unquote(user)}:{password}"
            self._headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        self._opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _SameSite())

    def call(self, method: str, path: str, body: Mapping[str, Any] | None, timeout_s: float) -> Any:
        """The answer; None for 404."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, self._headers, method=method)
        try:
            with self._opener.open(request, timeout=timeout_s) as response:
                return json.loads(response.read(_MAX_RESPONSE_BYTES))
        except urllib.error.HTTPError as error:
            if error.code == 404 and method == "GET":
                error.close()
                return None
            raise


class _SameSite(urllib.request.HTTPRedirectHandler):
    """Refuses to follow a redirect to another host, which would get the password, too."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        old, new = urllib.parse.urlsplit(req.full_url), urllib.parse.urlsplit(newurl)
        if old[:2] != new[:2]:
            raise urllib.error.HTTPError(req.full_url, code, f"and redirects to {new.hostname}", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _quoted(subject: str) -> str:
    return urllib.parse.quote(subject, safe="")


def _message(error: urllib.error.HTTPError) -> str:
    """The message of a refusal, in one line of bounded length."""
    try:
        found = json.loads(error.read(_MAX_RESPONSE_BYTES))
        text = str(found["message"])
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        text = str(error.reason)
    return " ".join(text.split())[:2000]
