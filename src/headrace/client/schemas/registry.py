"""Calls to the schema registry of the brokers, at the addresses where they serve HTTP.

A call is retried while no broker answers: one may be restarting, or another taking over. Every call is idempotent.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from headrace.client.errors import NotAuthenticated, SchemaFailed, Unreachable
from headrace.client.json_api import ApiRefused, ApiUnreachable, JsonApi
from headrace.config.credentials import Credentials
from headrace.model.backoff import ExponentialDelay, RetryDelays

_RETRY_DELAY_S = ExponentialDelay(0.05, 1.0)
_PREFIX = "/registry"


class RegistryCalls:
    """Calls to the first broker that answers. `find` returns the addresses, and is called again when all failed.

    Thread-safe.
    """

    def __init__(
        self,
        find: Callable[[], Sequence[str]],
        credentials: Credentials,
        patience_s: float,
        reach: Callable[[], None] = lambda: None,
    ) -> None:
        self._find = find
        self._credentials = credentials
        self._patience_s = patience_s
        self._reach = reach
        self._lock = threading.Lock()
        self._apis: list[JsonApi] = []

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The answer. Raises `SchemaFailed` when it is refused, and `Unreachable` when no broker answers in time."""
        self._reach()
        give_up_at_s = time.monotonic() + self._patience_s
        delays = RetryDelays(_RETRY_DELAY_S)
        while True:
            wait_s = delays.next()
            try:
                api = self._api()
                try:
                    return api.call(method, path, body)
                except ApiUnreachable as error:
                    self._forget(api)
                    raise Unreachable(str(error)) from None
                except ApiRefused as error:
                    if error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                        raise _refused(error) from None
                    self._forget(api)
                    raise Unreachable(f"the schema registry is not ready: {error}") from None
            except Unreachable:
                if time.monotonic() + wait_s > give_up_at_s:
                    raise
            time.sleep(wait_s)

    def _api(self) -> JsonApi:
        with self._lock:
            if self._apis:
                return self._apis[0]
        found = [JsonApi(url, self._credentials, prefix=_PREFIX) for url in self._find()]
        with self._lock:
            self._apis = found
            return found[0]

    def _forget(self, api: JsonApi) -> None:
        """Let the next call use the next address; after the last one the addresses are discovered again."""
        with self._lock:
            if api in self._apis:
                self._apis.remove(api)


def _refused(error: ApiRefused) -> Exception:
    if error.status == HTTPStatus.UNAUTHORIZED:
        return NotAuthenticated(f"the schema registry refuses the user: {error}")
    return SchemaFailed(str(error), code=error.code)


def quoted(name: str) -> str:
    """A name as a part of a path."""
    return quote(name, safe="")
