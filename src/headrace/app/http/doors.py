"""Sends each request over HTTP to its application by the path: queues have all paths that no other one has."""

from collections.abc import Mapping
from functools import partial

from headrace.app.http.exchange import AsgiApp, AsgiReceive, AsgiScope, AsgiSend, Begin, HttpExchange, Work


class HttpDoors:
    def __init__(self, by_prefix: Mapping[str, AsgiApp], default: AsgiApp, browsers: AsgiApp | None = None) -> None:
        """A prefix has no slash at its end, and stands for itself and for what is below it.

        `browsers` answers a browser that opens the address of the broker without a path.
        """
        self._by_prefix = tuple((prefix, f"{prefix}/", app) for prefix, app in by_prefix.items())
        self._default = default
        self._browsers = browsers or default

        self._begin_default: Begin | None = getattr(default, "begin", None)

    def begin(self, exchange: HttpExchange) -> Work | None:
        """Begin a request that has arrived in whole: most are calls of queues."""
        scope = exchange.scope
        if self._begin_default is not None and scope["path"] == "/" and scope["method"] == "POST":
            return self._begin_default(exchange)
        return partial(self, scope, exchange.receive, exchange.send)

    async def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        path = scope["path"]
        # Most requests of queues have this path.
        if path != "/":
            for prefix, below, app in self._by_prefix:
                if path == prefix or path.startswith(below):
                    await app(scope, receive, send)
                    return
        elif scope["method"] == "GET" and _is_from_a_browser(scope):
            await self._browsers(scope, receive, send)
            return
        await self._default(scope, receive, send)


def _is_from_a_browser(scope: AsgiScope) -> bool:
    """Whether a person opened the address: a call of SQS by GET has fields in the URL."""
    return not scope["query_string"] and any(
        name == b"accept" and b"text/html" in value for name, value in scope["headers"]
    )
