"""The log of several brokers that one command runs."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.cli.serve.workers import _Workers
from headrace.config.broker import broker_settings
from headrace.observe.logs import configure


@pytest.fixture(autouse=True)
def _logger_as_before() -> Iterator[None]:
    root = logging.getLogger("headrace")
    before = (root.handlers[:], root.level, root.propagate)
    yield
    root.handlers[:], root.level, root.propagate = before


def printed(log_format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    settings = broker_settings({"log.format": log_format, "data.dir": str(tmp_path)})
    configure("info", log_format=log_format)
    workers = _Workers(1, settings, {}, None)
    (child,) = workers._children
    workers._on_line(child, '{"message":"ready","broker_id":0}' if log_format == "json" else "12:00 INFO ready")
    workers._on_line(child, "headrace: the reason is printed when it ends")
    workers._died(child, 1, 2.0)
    return capsys.readouterr().err.splitlines()


def test_every_line_of_json_stays_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own, died = map(json.loads, printed("json", tmp_path, capsys))
    assert own == {"message": "ready", "broker_id": 0}
    assert died["worker"] == "worker-0"
    assert "is started again in 2 s" in died["message"]


def test_lines_of_text_name_their_worker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own, died = printed("text", tmp_path, capsys)
    assert own == "worker-0: 12:00 INFO ready"
    assert died.startswith("worker-0: ")
