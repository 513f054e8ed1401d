"""The parts of a broker together: what only their wiring can get wrong."""

import asyncio
from pathlib import Path

import pytest

from headrace.app.broker import BrokerApp
from headrace.config.broker import broker_settings
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
