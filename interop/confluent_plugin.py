"""What confluent-kafka-python's own tests import and do not need against a broker that already runs.

A pytest plugin of `confluent_suite.py`: the tool that starts Apache Kafka, and the clients of a schema registry, which
want further packages. Tests that need either are skipped.
"""

import functools
import sys
import types

import confluent_kafka  # noqa: F401 - the installed one, before the checkout is put on the path
import pytest
from secured_broker import SecuredAddresses

_ABSENT = {
    "trivup": (),
    "trivup.clusters": (),
    "trivup.clusters.KafkaCluster": ("KafkaCluster",),
    "confluent_kafka.schema_registry": (),
    "confluent_kafka.schema_registry._async": (),
    "confluent_kafka.schema_registry._async.schema_registry_client": ("AsyncSchemaRegistryClient",),
    "confluent_kafka.schema_registry.schema_registry_client": ("SchemaRegistryClient",),
    "confluent_kafka.avro": ("AvroConsumer",),
}

for _name, _classes in _ABSENT.items():
    _module = types.ModuleType(_name)
    for _class in _classes:
        setattr(_module, _class, type(_class, (), {}))
    sys.modules[_name] = _module


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for plugin in config.pluginmanager.get_plugins():
        if hasattr(plugin, "create_sasl_cluster"):
            existing = functools.partial(plugin.create_byo_cluster, _sasl_settings())
            plugin.create_sasl_cluster = lambda _, existing=existing: existing()
    for item in items:
        if "sasl_cluster" in getattr(item, "fixturenames", ()) and not SecuredAddresses.are_in_environment():
            item.add_marker(pytest.mark.skip(reason="needs a listener with SASL, which only a single broker has here"))


def _sasl_settings() -> dict[str, str]:
    """As the suite's own tool configures clients of the Apache Kafka that it starts."""
    if not SecuredAddresses.are_in_environment():
        return {}
    return {
        "bootstrap.servers": f"127.0.0.1:{SecuredAddresses.from_environment().sasl_plain}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "sasl_user",
        "sasl.password": "sasl_pass",
    }
