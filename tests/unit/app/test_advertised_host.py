import pytest

from headrace.app.advertised_host import with_advertised_host
from headrace.config.broker import broker_settings


@pytest.mark.parametrize(
    ("texts", "advertise"),
    [
        ({}, ""),
        ({"etcd.endpoints": "127.0.0.1:2379"}, "127.0.0.1"),
        ({"etcd.endpoints": "http://127.0.0.1:2379,127.0.0.1:2380"}, "127.0.0.1"),
        ({"etcd.endpoints": "127.0.0.1:2379", "advertise": "queue1:9092"}, "queue1:9092"),
        ({"etcd.endpoints": "127.0.0.1:2379", "kafka.listen": "10.0.0.1:9092"}, ""),
        ({"etcd.endpoints": "no-such-host.invalid:2379"}, ""),
    ],
)
def test_a_broker_of_a_cluster_has_one_address(texts: dict[str, str], advertise: str) -> None:
    settings = broker_settings({"kafka.listen": ":9092", "insecure": "true", **texts})
    assert with_advertised_host(settings).advertise == advertise
