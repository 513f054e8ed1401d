"""Live views: computed once for all watchers, ended with rights and sessions; slow readers are dropped."""

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from headrace.admin import live_views, streams
from headrace.admin.live_views import LiveEvent, LiveView, LiveViews, Watcher, pause_s
from headrace.admin.streams import OpenStreams
from headrace.testing import Broker
from tests.waiting import until

from .api import ADMIN, BOB, basic, call, secured
from .test_messages import TailStream
from .test_sessions import BrowserClient


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as one:
        call(one.http_url, "POST", "/topics", value={"name": "orders"})
        yield one


@pytest.mark.parametrize("view", ["overview", "cluster", "health", "topics/orders"])
def test_events_have_the_answer_of_the_get(broker: Broker, view: str) -> None:
    whole = call(broker.http_url, "GET", f"/{view}").value
    with TailStream(broker, f"/live/{view}") as stream:
        name, data, event_id = stream.next_event()
        assert (name, data.keys()) == ("message", whole.keys())
        assert int(event_id) > 1_700_000_000_000
        for points in (data.get("history") or {"series": {}})["series"].values():
            assert len(points) <= 1
        assert int(stream.next_event()[2]) > int(event_id)


def test_a_page_that_connects_again_gets_the_whole_history(broker: Broker) -> None:
    until(lambda: _points(call(broker.http_url, "GET", "/overview").value) > 1, "two points of history")
    with TailStream(broker, "/live/overview", last_event_id="1700000000000") as stream:
        assert _points(stream.next_event()[1]) > 1
        assert _points(stream.next_event()[1]) == 1


def _points(overview: dict) -> int:
    return max((len(points) for points in overview["history"]["series"].values()), default=0)


def test_unknown_views(broker: Broker) -> None:
    assert call(broker.http_url, "GET", "/live/nothing").value["error"] == "unknown_view"
    assert call(broker.http_url, "GET", "/live/users/bob").value["error"] == "unknown_view"


def test_a_view_ends_with_what_it_shows(broker: Broker) -> None:
    call(broker.http_url, "POST", "/topics", value={"name": "short-lived"})
    with TailStream(broker, "/live/topics/short-lived") as stream:
        assert stream.next_event()[0] == "message"
        assert call(broker.http_url, "DELETE", "/topics/short-lived").status == 204
        events = iter(stream.next_event, None)
        assert next(data["error"] for name, data, _ in events if name == "over") == "unknown_topic"


def test_streams_end_with_the_session_and_need_the_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    with secured(monkeypatch) as broker:
        for path in ("/live/cluster", "/live/topics/orders"):
            assert call(broker.http_url, "GET", path, BOB).status == 403
            assert call(broker.http_url, "GET", path).status == 401
        browser = BrowserClient(broker)
        browser.log_in(ADMIN)
        with TailStream(broker, "/live/cluster", cookie=browser.cookie) as stream:
            assert stream.next_event()[0] == "message"
            assert browser.call("DELETE", "/session").status == 204
            events = iter(stream.next_event, None)
            assert next(data["error"] for name, data, _ in events if name == "over") == "unauthorized"


def test_a_broker_stops_although_pages_are_open() -> None:
    with Broker() as broker, TailStream(broker, "/live/overview") as stream:
        stream.next_event()
        began_s = time.monotonic()
        broker.stop()
        assert time.monotonic() - began_s < 10


def test_too_many_streams_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams.OpenStreams.__init__, "__defaults__", (5, 2))
    with secured(monkeypatch) as broker:
        opened = [TailStream(broker, "/live/cluster", headers={"Authorization": basic(ADMIN)}) for _ in range(2)]
        refused = call(broker.http_url, "GET", "/live/cluster", ADMIN)
        assert (refused.status, refused.value["error"]) == (429, "too_many_streams")
        for stream in opened:
            stream.close()
        until(lambda: call(broker.http_url, "GET", "/live/cluster", ADMIN, max_bytes=13).status == 200, "room")


def test_a_slow_reader_is_dropped_and_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "SLOW_S", 1.0)
    monkeypatch.setattr(live_views, "EVERY_S", 0.001)
    monkeypatch.setattr(live_views, "BUSY_SHARE", 1.0)
    # The server's own timeout comes later than this test's.
    with Broker(settings={"request.read.timeout.ms": 600_000}) as broker:
        call(broker.http_url, "POST", "/topics", value={"name": "wide", "partitions": 100})
        where = urlsplit(broker.http_url)
        with socket.socket() as slow, TailStream(broker, "/live/topics/wide") as quick:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect((where.hostname, where.port))
            slow.sendall(b"GET /api/v1/live/topics/wide HTTP/1.1\r\nHost: localhost\r\n\r\n")
            deadline_s = time.monotonic() + 240
            events = 0
            while not _is_closed(slow):
                assert time.monotonic() < deadline_s
                quick.next_event()
                events += 1
            assert events > 10


def _is_closed(reader: socket.socket) -> bool:
    """Whether the peer has closed, without reading much: the rest of the buffer is read at the end."""
    try:
        reader.send(b"\r\n")
    except OSError:
        return True
    return False


class TestOneComputation:
    def test_all_watchers_share_it(self) -> None:
        async def run() -> tuple[int, list[bytes]]:
            computed = 0

            async def compute() -> LiveEvent:
                nonlocal computed
                computed += 1
                return LiveEvent(b"event %d" % computed)

            views = LiveViews()
            streams = [
                views.watch(("v", "", ""), lambda: LiveView(compute, lambda _: True), Watcher(None)) for _ in range(100)
            ]
            for stream in streams:
                assert await anext(stream) == b"retry: 2000\n\n"
            got = await asyncio.gather(*(anext(stream) for stream in streams))
            assert len(views) == 1
            for stream in streams:
                await stream.aclose()  # type: ignore[attr-defined]
            assert len(views) == 0
            return computed, got

        computed, got = asyncio.run(run())
        assert (computed, set(got)) == (1, {b"event 1"})

    def test_only_the_newest_event_waits(self) -> None:
        watcher = Watcher(None)
        for number in range(1000):
            watcher.offer(LiveEvent(b"%d" % number))
        assert watcher.pending == LiveEvent(b"999")

    def test_a_view_that_is_expensive_is_sent_less_often(self) -> None:
        assert pause_s(0.01) == pytest.approx(1.99)
        assert pause_s(0.5) == pytest.approx(9.5)


def test_the_number_of_streams_is_counted() -> None:
    async def run() -> None:
        opened = OpenStreams(3, 2)
        with opened.counted("a"), opened.counted("a"):
            with pytest.raises(Exception, match="too many"):
                opened.check("a")
            opened.check("b")
            with opened.counted("b"), pytest.raises(Exception, match="too many"):
                opened.check("c")
        assert opened.count == 0

    asyncio.run(run())


def test_events_are_one_line() -> None:
    piece = streams.event(json.dumps({"text": "a\nb\rc"}).encode(), name="x", event_id="7")
    assert piece.decode().split("\n") == ["id: 7", "event: x", 'data: {"text": "a\\nb\\rc"}', "", ""]
