"""The work of `headrace health --ready`: asks `/readyz` of one broker, which needs no login."""

import ssl
import time
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from urllib.parse import urlsplit

from headrace.app.secured_home import running_broker
from headrace.cli.errors import BadArgument, CommandFailed
from headrace.cli.http_api import discovered_url

_PATH = "/readyz"
_TIMEOUT_S = 10.0
_RETRY_S = 0.2
_MAX_ANSWER_BYTES = 64 * 1024


def await_ready(bootstrap: str, http: str, data_dir: Path | None, wait_s: float) -> None:
    """Return when the broker is ready; `CommandFailed` with the reason if it is not, or not within `wait_s`."""
    deadline_s = time.monotonic() + wait_s
    while True:
        try:
            why_not = _why_not(_url(bootstrap, http, data_dir))
        except CommandFailed as error:
            why_not = str(error)
        if not why_not:
            print("ready")
            return
        if time.monotonic() >= deadline_s:
            raise CommandFailed(why_not)
        time.sleep(_RETRY_S)


def _url(bootstrap: str, http: str, data_dir: Path | None) -> str:
    if data_dir is not None:
        running = running_broker(data_dir)
        if running is None:
            raise CommandFailed(f"no broker uses {data_dir}, or it has not opened its logs yet")
        if not running.http:
            raise CommandFailed("the broker serves no HTTP: remove http.listen=off from its settings")
        return running.http
    return http.split(",")[0].strip() or discovered_url(bootstrap)


def _why_not(url: str) -> str:
    """Why the broker at this address is not ready; empty if it is."""
    connection = _connection(url)
    try:
        connection.request("GET", _PATH)
        answer = connection.getresponse()
        text = answer.read(_MAX_ANSWER_BYTES).decode(errors="replace").strip()
    except (OSError, HTTPException) as error:
        return f"{url} does not answer: {error or type(error).__name__}"
    finally:
        connection.close()
    if answer.status in (200, 503):
        return "" if answer.status == 200 else text
    return f"{url} is no broker that says whether it is ready: it answers with the status {answer.status}"


def _connection(url: str) -> HTTPConnection:
    parts = urlsplit(url if "//" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadArgument(f"{url} is not an address over HTTP: write http://HOST:PORT")
    if parts.scheme == "http":
        return HTTPConnection(parts.hostname, parts.port, timeout=_TIMEOUT_S)
    # Nothing secret is sent, and a broker is asked by the address of its own machine, which its certificate may lack.
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return HTTPSConnection(parts.hostname, parts.port, timeout=_TIMEOUT_S, context=context)
