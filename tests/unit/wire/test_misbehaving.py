"""What is not a broker, or not a good one: a bounded wait, and one sentence."""

import pickle
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from headrace.model.errors import SettingsError
from headrace.wire import BrokerUnreachable, Cluster, NotKafka, Timeouts, WireError
from headrace.wire.errors import Refused, TimedOut, Unready, refusal

PATIENT = Timeouts(connect_s=60, request_s=60, patience_s=0.2)
"""What answers, answers in time, however busy the machine is; and is asked once or twice."""
HASTY = Timeouts(connect_s=60, request_s=0.5, patience_s=0.2)


@contextmanager
def server(behave: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that does `behave` with each connection, one after another."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.05)
    stopping = threading.Event()

    def serve() -> None:
        while not stopping.is_set():
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            # The client hangs up as soon as it knows, which may be in the middle of an answer.
            with connection, suppress(ConnectionError):
                connection.settimeout(60)
                behave(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        stopping.set()
        thread.join(60)
        listener.close()


def answering(data: bytes) -> Callable[[socket.socket], None]:
    """Answers the first request with `data`, and listens until the client has hung up: it is never the first to go."""

    def behave(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(data)
        while connection.recv(1000):
            pass

    return behave


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def asked(bootstrap: str, timeouts: Timeouts = PATIENT) -> WireError:
    with Cluster(bootstrap, timeouts=timeouts) as cluster, pytest.raises(WireError) as caught:
        cluster.metadata()
    return caught.value


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    error = asked(f"127.0.0.1:{port}")
    assert isinstance(error, BrokerUnreachable)
    assert str(error) == f"no broker answers at 127.0.0.1:{port}: connection refused"


def test_a_name_that_does_not_exist() -> None:
    assert "no broker answers at broker.invalid:9092" in str(asked("broker.invalid"))


@pytest.mark.parametrize("bootstrap", ["", " , "])
def test_no_address(bootstrap: str) -> None:
    with pytest.raises(BrokerUnreachable, match="no broker is named"):
        Cluster(bootstrap)


def test_a_wrong_address() -> None:
    with pytest.raises(SettingsError, match="without a scheme"):
        Cluster("PLAINTEXT://localhost:9092")


def test_silence_is_not_waited_for_forever() -> None:
    with server(answering(b"")) as bootstrap:
        error = asked(bootstrap, HASTY)
    assert isinstance(error, TimedOut)
    assert "did not answer ApiVersions within 0.5 s" in str(error)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x15\x03\x03\x00\x02\x02\x46",
        framed(b"\x00\x00"),
        framed(b"\x00\x00\x00\x63\x00\x00"),
        framed(b"\x00\x00\x00\x01"),
        framed(b"\x00\x00\x00\x01\x00\x23\x00\x00\x00\x00") * 3,
    ],
    ids=["http", "tls", "too short", "another correlation id", "no body", "no version will do"],
)
def test_something_else_answers(answer: bytes) -> None:
    with server(answering(answer)) as bootstrap:
        error = asked(bootstrap, HASTY)
    assert isinstance(error, NotKafka | TimedOut), error
    assert bootstrap in str(error)


def test_an_array_that_claims_four_billion_elements_is_refused() -> None:
    with server(answering(framed(b"\x00\x00\x00\x01\x00\x00\xff\xff\xff\xff\x0f"))) as bootstrap:
        error = asked(bootstrap)
    assert "cannot be read" in str(error)
    assert "an array claims 4294967294 elements" in str(error)


def test_a_connection_that_ends_in_the_middle_of_an_answer() -> None:
    def behave(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(struct.pack(">i", 100_000) + b"\x00\x00\x00\x01")

    with server(behave) as bootstrap:
        error = asked(bootstrap)
    assert isinstance(error, BrokerUnreachable)
    assert "closed the connection" in str(error) or "broke" in str(error)


def test_errors_survive_pickling() -> None:
    error = refusal("fetching orders-0", 6)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is Unready
    assert str(again) == "fetching orders-0 failed: the broker answers NOT_LEADER_OR_FOLLOWER"
    assert again.code == 6
    assert type(refusal("x", 9999)) is Refused
