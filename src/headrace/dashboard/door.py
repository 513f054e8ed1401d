"""The ASGI application of the dashboard: every path under `/ui` is the page, and `/ui/assets/DIGEST/…` its files.

The page is one file, and its scripts show the view that the path names: so each view has an address. Nothing here
depends on the client, so there is no login: what a person may see is decided by the HTTP API that the scripts call.

The digest in the address of a file changes with any of the files. Browsers store files for a year and ask for the page
each time, so a new version of the broker shows its own files at once.
"""

import asyncio
from collections.abc import Iterable

from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from headrace.dashboard.asset_folder import Asset, AssetFolder, load_assets

UI_PREFIX = "/ui"

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "font-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
"""Scripts, styles, images and connections of this broker only; pages of other sites may not show it in a frame."""

_SECURITY_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_ASSETS = f"{UI_PREFIX}/assets/"
_FOREVER = "public, max-age=31536000, immutable"
_ASK_AGAIN = "no-cache"


class DashboardDoor:
    """Serves the files of the dashboard. They are read, once, when the first request comes."""

    def __init__(self) -> None:
        self._folder: asyncio.Future[AssetFolder] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._answer(scope)
        await response(scope, receive, send)

    async def _answer(self, scope: Scope) -> Response:
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("the dashboard has GET and HEAD only\n", 405, {"allow": "GET, HEAD"})
        folder = await self._files()
        path: str = scope["path"]
        if not path.startswith(_ASSETS):
            return _response(folder.page, scope["headers"], _ASK_AGAIN)
        digest, _, name = path.removeprefix(_ASSETS).partition("/")
        asset = folder.files.get(name)
        if asset is None:
            return PlainTextResponse("the dashboard has no such file: open /ui\n", 404, _SECURITY_HEADERS)
        # While brokers are upgraded, the page of another version may ask. It must not store the file under that name.
        return _response(asset, scope["headers"], _FOREVER if digest == folder.digest else _ASK_AGAIN)

    async def _files(self) -> AssetFolder:
        if self._folder is None:
            self._folder = asyncio.ensure_future(asyncio.to_thread(load_assets, _ASSETS))
        return await asyncio.shield(self._folder)


def to_dashboard() -> Response:
    """The answer to a browser that asks for `/`, which is an application, too."""
    return RedirectResponse(UI_PREFIX, 303)


def _response(asset: Asset, headers: Iterable[tuple[bytes, bytes]], caching: str) -> Response:
    asked = dict(headers)
    answer = _SECURITY_HEADERS | {"cache-control": caching, "etag": asset.etag, "vary": "accept-encoding"}
    if asset.etag in asked.get(b"if-none-match", b"").decode("latin-1"):
        return Response(status_code=304, headers=answer)
    body = asset.content
    if asset.gzipped is not None and b"gzip" in asked.get(b"accept-encoding", b""):
        body = asset.gzipped
        answer["content-encoding"] = "gzip"
    return Response(body, 200, answer, media_type=asset.media_type)
