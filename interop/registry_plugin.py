"""What confluent-kafka-python's tests of the schema registry lack against a broker that already runs.

A pytest plugin of `registry_suite.py`: the tool that starts Apache Kafka is not needed, and the suite's description of
a cluster that already runs has no asynchronous client of the registry.
"""

import os
import sys
import types
from typing import Any

import confluent_kafka  # noqa: F401 - the installed one, before the checkout is put on the path
import pytest

for _name, _classes in (("trivup", ()), ("trivup.clusters", ()), ("trivup.clusters.KafkaCluster", ("KafkaCluster",))):
    _module = types.ModuleType(_name)
    for _class in _classes:
        setattr(_module, _class, type(_class, (), {}))
    sys.modules[_name] = _module


def pytest_collection_modifyitems(config: pytest.Config) -> None:
    from confluent_kafka.schema_registry import AsyncSchemaRegistryClient

    def async_schema_registry(_: Any, conf: dict[str, Any] | None = None) -> Any:
        return AsyncSchemaRegistryClient({"url": os.environ["SR_URL"], **(conf or {})})

    for plugin in config.pluginmanager.get_plugins():
        existing = getattr(plugin, "ByoFixture", None)
        if existing is not None:
            existing.async_schema_registry = async_schema_registry
