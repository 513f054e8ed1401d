"""Points kafka-python's own tests of TLS and SASL, which start Apache Kafka, to a broker that already runs.

A pytest plugin of `kafka_python_suite.py`.
"""

import shutil
from typing import Any

import pytest
from secured_broker import SecuredAddresses

import kafka  # noqa: F401 - the installed one, before the checkout is put on the path


def pytest_collection_modifyitems(config: pytest.Config) -> None:
    for plugin in config.pluginmanager.get_plugins():
        fixture = getattr(plugin, "KafkaFixture", None)
        if fixture is not None:
            fixture.instance = _instance_of(fixture)


def _instance_of(fixture: Any) -> Any:
    addresses = SecuredAddresses.from_environment()
    ports = {"PLAINTEXT": addresses.plain, "SSL": addresses.tls, "SASL_PLAINTEXT": addresses.sasl_plain}
    shutil.copy(addresses.certificates / "ca.crt", addresses.certificates / "ca-cert")

    def instance(
        broker_id: int, *, transport: str = "PLAINTEXT", sasl_mechanism: str | None = None, **_: object
    ) -> Any:
        made = fixture(
            "127.0.0.1", ports[transport], broker_id, transport=transport, sasl_mechanism=sasl_mechanism, external=True
        )
        made.ssl_dir = str(addresses.certificates)
        # The suite's own runs one of Kafka's tools.
        made.get_topic_names = lambda: list(addresses.admin().list_topics(timeout=30).topics)
        return made

    return instance
