"""The figures of a probe for Prometheus, with names like those of KMinion's end-to-end monitoring."""

import threading
import time
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from headrace.cli.errors import BadArgument, CommandFailed
from headrace.cli.probe.paths import ProbePath
from headrace.observe.end_to_end import EndToEnd
from headrace.observe.exposition import negotiated, rendered
from headrace.observe.families import Metric, MetricFamily, counter, gauge, histogram
from headrace.observe.histogram import Histogram

PRODUCED = counter("headrace_end_to_end_messages_produced_total", "Messages sent.", "path")
RECEIVED = counter("headrace_end_to_end_messages_received_total", "Messages received in time.", "path")
LOST = counter("headrace_end_to_end_messages_lost_total", "Messages not received in time.", "path")
IN_FLIGHT = gauge("headrace_end_to_end_messages_in_flight", "Messages sent and not received yet.", "path")
ACK = histogram("headrace_end_to_end_produce_latency_seconds", "From sending to the acknowledgement.", "path")
ROUNDTRIP = histogram("headrace_end_to_end_roundtrip_latency_seconds", "From sending to receiving.", "path")


def families(paths: Iterable[ProbePath]) -> list[MetricFamily]:
    found: dict[str, EndToEnd] = {}
    for path in paths:
        with path.lock:
            found[path.name] = path.figures()

    def of(metric: Metric, value: Callable[[EndToEnd], int | Histogram]) -> MetricFamily:
        return metric.family([(metric.label_text(name), value(each)) for name, each in found.items()])

    return [
        of(PRODUCED, lambda each: each.sent),
        of(RECEIVED, lambda each: each.received),
        of(LOST, lambda each: each.lost),
        of(IN_FLIGHT, lambda each: each.pending),
        of(ACK, lambda each: each.ack_s),
        of(ROUNDTRIP, lambda each: each.roundtrip_s),
    ]


def metrics_text(paths: Iterable[ProbePath], accept: str = "") -> tuple[str, bytes]:
    """The content type and the text."""
    text_format = negotiated(accept)
    problems: list[Exception] = []
    text = b"".join(rendered(families(paths), text_format, time.monotonic, lambda _, error: problems.append(error)))
    if problems:
        raise problems[0]
    return text_format.value, text


class MetricsListener:
    """Serves `/metrics` in threads of its own."""

    def __init__(self, listen: str, paths: list[ProbePath]) -> None:
        host, _, port = listen.rpartition(":")
        if not port.isdecimal() or int(port) > 65_535:
            raise BadArgument(f"--listen {listen} is not HOST:PORT or :PORT")

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.partition("?")[0] != "/metrics":
                    self.send_error(404, "the figures are at /metrics")
                    return
                kind, text = metrics_text(paths, self.headers.get("accept", ""))
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
        self._thread = threading.Thread(target=self._server.serve_forever, name="probe-metrics", daemon=True)
        self._thread.start()
        bound_host, bound_port = self._server.server_address[:2]
        self.url = f"http://{bound_host!s}:{bound_port}/metrics"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
