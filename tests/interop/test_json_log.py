"""The log of a real broker as JSON lines, with the ids of requests."""

import http.client
import json
import socket
import struct
from typing import Any
from urllib.parse import urlsplit

from headrace.testing.process import BrokerProcess
from tests.waiting import until

_METADATA, _VERSION = 3, 12


def lines(broker: BrokerProcess, logger: str = "") -> list[dict[str, Any]]:
    found = [json.loads(line) for line in broker.stderr.splitlines()]
    return [line for line in found if line["logger"].endswith(logger)]


def get(url: str, path: str, request_id: str) -> tuple[int, str | None]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        connection.request("GET", path, headers={"x-request-id": request_id})
        answer = connection.getresponse()
        return answer.status, answer.getheader("x-request-id")
    finally:
        connection.close()


def send_malformed(port: int, correlation_id: int, client_id: bytes) -> str:
    """Send a request whose body cannot be read, wait until the broker closes; returns where it came from."""
    head = struct.pack(">hhih", _METADATA, _VERSION, correlation_id, len(client_id)) + client_id + b"\0"
    frame = head + b"\xff" * 5
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        assert connection.recv(1) == b""
        host, own_port = connection.getsockname()
        return f"{host}:{own_port}"


def test_every_line_is_json_and_lines_of_requests_have_their_ids(tmp_path):
    settings = {"http.access.log": True, "broker.id": 3}
    with BrokerProcess(tmp_path / "data", settings=settings, args=["--log-format", "json"]) as broker:
        assert get(broker.http_url, "/api/v1/nothing?secret=1", "abc") == (404, "abc")
        address = send_malformed(broker.port, 42, b"shop")
        until(lambda: lines(broker, "access_log") and lines(broker, "security.security"), lambda: broker.stderr)

        (access,) = lines(broker, "access_log")
        assert access["request_id"] == "abc"
        assert (access["method"], access["path"], access["status"]) == ("GET", "/api/v1/nothing", 404)
        closed = lines(broker, "security.security")[0]
        assert "malformed request" in closed["message"]
        assert closed["request_id"] == f"{address}/42"
        assert closed["client"] == f"shop {address}"

        broker.terminate()
        assert all(line["broker_id"] == 3 and line["time"].endswith("Z") for line in lines(broker))
        assert "secret" not in broker.stderr
