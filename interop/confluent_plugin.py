"""What confluent-kafka-python's own tests import and do not need against a broker that already runs.

A pytest plugin of `confluent_suite.py`: the tool that starts Apache Kafka, and the clients of a schema registry, which
want further packages. Tests that need either are skipped.
"""

import sys
import types

import confluent_kafka  # noqa: F401 - the installed one, before the checkout is put on the path
import pytest

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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "sasl_cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.skip(reason="starts Apache Kafka with SASL, which is not served yet"))
