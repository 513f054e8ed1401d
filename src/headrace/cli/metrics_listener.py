"""`--listen` of commands that run for long: their figures at `/metrics`, for Prometheus."""

import threading
import time
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from headrace.cli.errors import BadArgument, CommandFailed
from headrace.observe.exposition import negotiated, rendered
from headrace.observe.families import MetricFamily


def metrics_text(families: Iterable[MetricFamily], accept: str = "") -> tuple[str, bytes]:
    """The content type and the text."""
    text_format = negotiated(accept)
    problems: list[Exception] = []
    text = b"".join(rendered(families, text_format, time.monotonic, lambda _, error: problems.append(error)))
    if problems:
        raise problems[0]
    return text_format.value, text


class MetricsListener:
    """Serves `/metrics` in threads of its own; `families` is called there for each request."""

    def __init__(self, listen: str, families: Callable[[], Iterable[MetricFamily]]) -> None:
        host, _, port = listen.rpartition(":")
        if not port.isdecimal() or int(port) > 65_535:
            raise BadArgument(f"--listen {listen} is not HOST:PORT or :PORT")

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.partition("?")[0] != "/metrics":
                    self.send_error(404, "the figures are at /metrics")
                    return
                kind, text = metrics_text(families(), self.headers.get("accept", ""))
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: object) -> None:
                """Requests are not logged: they would be lines within the table."""

        try:
            self._server = ThreadingHTTPServer((host.strip("[]") or "127.0.0.1", int(port)), Handler)
        except OSError as error:
            raise CommandFailed(f"cannot listen on {listen}: {error.strerror or error}") from None
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics-listener", daemon=True)
        self._thread.start()
        bound_host, bound_port = self._server.server_address[:2]
        self.url = f"http://{bound_host!s}:{bound_port}/metrics"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
