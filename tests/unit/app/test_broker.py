"""The parts of a broker together: what only their wiring can get wrong."""

import asyncio
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.app.broker import BrokerApp
from headrace.config.broker import broker_settings
from headrace.config.broker_rows import HTTP_PORT_DISTANCE
from headrace.model.errors import StartupError
from headrace.runtime.expiries import Expiries


def test_work_in_the_background_that_ends_by_an_error_is_told_of_and_does_not_spoil_the_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    swept = asyncio.Event()

    def sweep(_: Expiries, now_ms: float) -> None:
        swept.set()
        raise ValueError("played")

    monkeypatch.setattr(Expiries, "sweep", sweep)

    async def run() -> None:
        app = BrokerApp(broker_settings({"data.dir": str(tmp_path), "kafka.listen": "127.0.0.1:0"}))
        await app.start()
        await asyncio.wait_for(swept.wait(), 60)
        await asyncio.sleep(0)
        await app.stop()

    asyncio.run(run())
    assert "played" in caplog.text
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_second_broker_on_a_port_is_told_of_that_port_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as kafka, socket.socket() as http:
        kafka.bind(("127.0.0.1", 0))
        kafka.listen()
        port = kafka.getsockname()[1]
        # Where queues would be served, too, unless somebody else has that one, or it is none.
        with suppress(OSError, OverflowError):
            http.bind(("127.0.0.1", port + HTTP_PORT_DISTANCE))
            http.listen()
        app = BrokerApp(broker_settings({"data.dir": str(tmp_path), "kafka.listen": f"127.0.0.1:{port}"}))
        with pytest.raises(StartupError, match=rf"cannot listen on 127\.0\.0\.1:{port}"):
            asyncio.run(app.start())
    assert not [record for record in caplog.records if record.name.startswith("headrace.app")]


def test_a_broker_that_cannot_start_leaves_no_directory_behind(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        settings = {"data.dir": str(tmp_path / "new"), "kafka.listen": f"127.0.0.1:{taken.getsockname()[1]}"}
        with pytest.raises(StartupError):
            asyncio.run(BrokerApp(broker_settings(settings)).start())
        assert list(tmp_path.iterdir()) == []
        # One that was there stays, and so does what is in it.
        (tmp_path / "new").mkdir()
        with pytest.raises(StartupError):
            asyncio.run(BrokerApp(broker_settings(settings)).start())
        assert (tmp_path / "new" / "meta.properties").exists()


def test_the_directory_of_a_broker_that_has_run_stays_when_the_next_start_fails(tmp_path: Path) -> None:
    settings = {"data.dir": str(tmp_path / "data"), "kafka.listen": "127.0.0.1:0", "http.listen": "off"}

    async def run_once() -> None:
        app = BrokerApp(broker_settings(settings))
        await app.start()
        await app.stop()

    asyncio.run(run_once())
    before = (tmp_path / "data" / "meta.properties").read_bytes()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = {"kafka.listen": f"127.0.0.1:{taken.getsockname()[1]}"}
        with pytest.raises(StartupError):
            asyncio.run(BrokerApp(broker_settings({**settings, **listen})).start())
    assert (tmp_path / "data" / "meta.properties").read_bytes() == before
