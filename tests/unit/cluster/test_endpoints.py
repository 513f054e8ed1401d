import pytest

from headrace.cluster.endpoints import advertised_endpoint, default_endpoint
from headrace.model.image import Endpoint


@pytest.mark.parametrize(
    ("listen", "advertise", "local", "expected"),
    [
        ("127.0.0.1", "", "127.0.0.1", "127.0.0.1:9092"),
        ("localhost", "", "127.0.0.1", "localhost:9092"),
        ("0.0.0.0", "", "192.168.1.5", "192.168.1.5:9092"),
        ("", "", "::ffff:192.168.1.5", "192.168.1.5:9092"),
        ("::", "", "::1", "[::1]:9092"),
        ("0.0.0.0", "broker.example", "192.168.1.5", "broker.example:9092"),
        ("127.0.0.1", "broker.example:19092", "127.0.0.1", "broker.example:19092"),
    ],
)
def test_what_a_client_is_told(listen: str, advertise: str, local: str, expected: str) -> None:
    # The configured port may be 0; the one of the socket counts.
    assert str(advertised_endpoint(Endpoint(listen, 0), advertise, Endpoint(local, 9092))) == expected


def test_what_is_named_when_nobody_asks() -> None:
    assert default_endpoint(Endpoint("", 0), "", 9092) == Endpoint("127.0.0.1", 9092)
    assert default_endpoint(Endpoint("10.0.0.1", 0), "", 9092) == Endpoint("10.0.0.1", 9092)
    assert default_endpoint(Endpoint("", 0), "b.example", 9092) == Endpoint("b.example", 9092)
