"""A plain Kafka connection: one request, one answer, on a blocking socket. For what librdkafka hides or does not offer.

The highest version that both sides know is used, so it works with any broker.
"""

import socket
import struct
from io import BytesIO
from typing import Any

from kio.index import load_payload_module, load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.constants import EntityType

from headrace.model.errors import ProtocolError

API_VERSIONS = 18
_MAX_ANSWER_BYTES = 64 * 1024 * 1024
_CORRELATION_ID = 7
_CLIENT_ID = b"headrace-cli"


class Connection:
    """Raises `OSError` when the network fails and `ProtocolError` when the other end does not speak Kafka."""

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        self._socket = socket.create_connection((host, port), timeout_s)
        self.peer: str = self._socket.getpeername()[0]
        self._versions: dict[int, tuple[int, int]] = {}

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def api_versions(self) -> dict[int, tuple[int, int]]:
        """The APIs of the broker: key to lowest and highest version. Version 0 of this one is known everywhere."""
        answer = self.send(load_request_schema(API_VERSIONS, 0)())
        self._versions = {int(api.api_key): (int(api.min_version), int(api.max_version)) for api in answer.api_keys}
        return self._versions

    def version(self, key: int, highest: int) -> int | None:
        """The highest version up to `highest` that the broker has too; None if there is none."""
        low, high = (self._versions or self.api_versions()).get(key, (0, -1))
        best = min(high, highest)
        return best if best >= low else None

    @staticmethod
    def schema(key: int, version: int) -> Any:
        """The module of a request's classes."""
        return load_payload_module(key, version, EntityType.request)

    def send(self, request: Any) -> Any:
        """The answer to `request`, both kio entities."""
        key, version = request.__api_key__, request.__version__
        body = BytesIO()
        body.write(struct.pack(">hhih", key, version, _CORRELATION_ID, len(_CLIENT_ID)) + _CLIENT_ID)
        if request.__flexible__:
            body.write(b"\x00")
        entity_writer(type(request))(body, request)
        self._socket.sendall(struct.pack(">i", len(body.getvalue())) + body.getvalue())
        frame = self._read_frame()
        response = load_response_schema(key, version)
        start = 4 + (1 if response.__flexible__ and key != API_VERSIONS else 0)
        try:
            return entity_reader(response)(frame, start)[0]
        except (SerialError, ValueError, KeyError, OverflowError, IndexError) as error:
            raise ProtocolError(f"the answer cannot be read: {error}") from error

    def _read_frame(self) -> bytes:
        head = self._read(4)
        (size,) = struct.unpack(">i", head)
        if not 4 <= size <= _MAX_ANSWER_BYTES:
            raise NotKafka(head + self._read_what_comes())
        frame = self._read(size)
        if struct.unpack_from(">i", frame)[0] != _CORRELATION_ID:
            raise NotKafka(head + frame[:64])
        return frame

    def _read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(min(size - len(parts), 1 << 20))
            if not part:
                raise ProtocolError("the other end closed the connection without an answer")
            parts += part
        return bytes(parts)

    def _read_what_comes(self) -> bytes:
        self._socket.settimeout(0.2)
        try:
            return self._socket.recv(256)
        except OSError:
            return b""


class NotKafka(ProtocolError):
    """Something answered that is not a Kafka broker; `sample` is how its answer began."""

    def __init__(self, sample: bytes) -> None:
        super().__init__("the answer is not a Kafka frame")
        self.sample = sample
