"""Reports a pipeline to a broker, in a thread of its own: every few seconds, and when its state changes.

A report that fails changes nothing for the pipeline: the log has one line, and another one when reports arrive again. A
request lasts at most `_REQUEST_S`, so the end of a pipeline waits no longer than that for its last report.
"""

import logging
import threading
import urllib.parse
from collections.abc import Callable

import msgspec

from headrace.client.errors import ClientError
from headrace.client.json_api import ApiUnreachable, JsonApi
from headrace.model.errors import HeadraceError
from headrace.model.pipeline_report import REPORT_EVERY_S, PipelineReport, ReportAnswer
from headrace.pipelines.control.http_sites import http_sites
from headrace.pipelines.spec.model import Spec

_log = logging.getLogger("headrace.pipelines")

_REQUEST_S = 5.0
_QUICK_RETRIES = 6
_RETRY_EVERY_S = 30.0
"""After some failures in a row, so that brokers that refuse reports are not asked all the time."""
_MIN_GAP_S = 0.5


class BrokerSite:
    """Sends reports to any broker of the pipeline's cluster, and finds the next one if it does not answer."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._path = f"/pipelines/{urllib.parse.quote(spec.name, safe='')}/report"
        self._apis: list[JsonApi] = []

    def send(self, report: PipelineReport) -> ReportAnswer:
        """Raises a `HeadraceError` if no broker takes it."""
        if not self._apis:
            self._apis = self._find()
        body = msgspec.json.encode(report)
        while True:
            api = self._apis[0]
            try:
                return msgspec.convert(api.call("POST", self._path, body), ReportAnswer)
            except ApiUnreachable:
                self._apis.pop(0)
                if not self._apis:
                    raise
            except msgspec.ValidationError as error:
                raise ClientError(f"{api.url} answers in no known way: {error}") from None

    def _find(self) -> list[JsonApi]:
        found, credentials = http_sites(self._spec.bootstrap, self._spec.connection)
        return [JsonApi(url, credentials, _REQUEST_S) for url in found]


class Reporter:
    """Sends what `make` returns until `close`, and gives each answer to `on_answer`, both in its thread."""

    def __init__(
        self,
        send: Callable[[PipelineReport], ReportAnswer],
        make: Callable[[], PipelineReport],
        on_answer: Callable[[ReportAnswer], None] = lambda answer: None,
        *,
        every_s: float = REPORT_EVERY_S,
    ) -> None:
        self._send = send
        self._make = make
        self._on_answer = on_answer
        self._every_s = every_s
        self._changed = threading.Event()
        self._closing = threading.Event()
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name="headrace-reports", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def report_soon(self) -> None:
        """Report now instead of at the next interval: the state has changed."""
        self._changed.set()

    def close(self, last: PipelineReport | None = None) -> None:
        """Stop reporting, after a last report."""
        self._closing.set()
        self._changed.set()
        if self._thread.is_alive():
            self._thread.join(2 * _REQUEST_S)
        if last is not None and not self._failures:
            self._report(last)

    def _run(self) -> None:
        while not self._closing.is_set():
            self._changed.clear()
            self._report(None)
            if not self._closing.wait(_MIN_GAP_S):
                self._changed.wait(_RETRY_EVERY_S if self._failures > _QUICK_RETRIES else self._every_s)

    def _report(self, last: PipelineReport | None) -> None:
        try:
            answer = self._send(last or self._make())
        except HeadraceError as error:
            self._failed(str(error))
        except Exception as error:
            self._failed(f"{type(error).__name__}: {error}")
        else:
            if self._failures:
                _log.info("the pipeline is reported to the brokers again")
            self._failures = 0
            if last is None and not self._closing.is_set():
                self._heed(answer)

    def _heed(self, answer: ReportAnswer) -> None:
        try:
            self._on_answer(answer)
        except Exception:
            _log.exception("what a broker asks of the pipeline could not be done")

    def _failed(self, reason: str) -> None:
        if not self._failures:
            _log.warning("the brokers do not show this pipeline, which goes on all the same: %s", reason)
        self._failures += 1
