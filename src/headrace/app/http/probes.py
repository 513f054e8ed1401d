"""`/healthz` and `/readyz`: what Kubernetes, load balancers and service managers ask. They need no login.

- `/healthz` answers 200 as long as the event loop runs: restart the process if it does not.
- `/readyz` answers 200 when the broker can serve clients, and 503 with the reasons in words when not.

Text by default; JSON where the client accepts it: `{"status": "not ready", "reasons": […]}`.
"""

import json

from headrace.app.http.exchange import AsgiReceive, AsgiScope, AsgiSend
from headrace.app.readiness import Readiness

HEALTH_PATH = "/healthz"
READY_PATH = "/readyz"
_METHODS = ("GET", "HEAD")


class Probes:
    def __init__(self, readiness: Readiness) -> None:
        self._readiness = readiness

    async def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        if scope["method"] not in _METHODS:
            await _answer(scope, send, 405, "method not allowed", [], [(b"allow", b"GET, HEAD")])
        elif scope["path"] == HEALTH_PATH:
            await _answer(scope, send, 200, "alive", [])
        elif scope["path"] == READY_PATH:
            reasons = await self._readiness.obstacles()
            await _answer(scope, send, 503 if reasons else 200, "not ready" if reasons else "ready", reasons)
        else:
            await _answer(scope, send, 404, "not found", [])


async def _answer(
    scope: AsgiScope,
    send: AsgiSend,
    code: int,
    status: str,
    reasons: list[str],
    headers: list[tuple[bytes, bytes]] | None = None,
) -> None:
    if any(name == b"accept" and b"json" in value for name, value in scope["headers"]):
        body, kind = json.dumps({"status": status, "reasons": reasons}).encode(), b"application/json"
    else:
        body, kind = (": ".join((status, "; ".join(reasons))) if reasons else status).encode(), b"text/plain"
    sent = [
        (b"content-type", kind + b"; charset=utf-8"),
        (b"content-length", b"%d" % (len(body) + 1)),
        (b"cache-control", b"no-store"),
        *(headers or []),
    ]
    await send({"type": "http.response.start", "status": code, "headers": sent})
    await send({"type": "http.response.body", "body": body + b"\n"})
