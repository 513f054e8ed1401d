"""Sends each request over HTTP to its application by the path: queues have all paths that no other one has."""

from collections.abc import Mapping

from headrace.app.http.exchange import AsgiApp, AsgiReceive, AsgiScope, AsgiSend


class HttpDoors:
    def __init__(self, by_prefix: Mapping[str, AsgiApp], default: AsgiApp) -> None:
        """A prefix has no slash at its end, and stands for itself and for what is below it."""
        self._by_prefix = tuple((prefix, f"{prefix}/", app) for prefix, app in by_prefix.items())
        self._default = default

    async def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        path = scope["path"]
        # Most requests of queues have this path.
        if path != "/":
            for prefix, below, app in self._by_prefix:
                if path == prefix or path.startswith(below):
                    await app(scope, receive, send)
                    return
        await self._default(scope, receive, send)
