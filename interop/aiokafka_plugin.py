"""The fixtures of aiokafka's own tests, for a broker that already runs (a pytest plugin of `aiokafka_suite.py`).

The suite's own start Apache Kafka in Docker. Only the tests that ask for a broker are kept.
"""

import asyncio
import gc
import os
from collections.abc import Iterator

import aiokafka  # noqa: F401 - the installed one, before the checkout is put on the path
import pytest
from secured_broker import SecuredAddresses
from suite_acls import AclManager, KafkaConfig

_NEEDS_KERBEROS = "needs Kerberos, which is not served"
_NEEDS_ONE_BROKER = "needs listeners with TLS and SASL, which only a single broker has here"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    concerned = [item for item in items if "setup_test_class" in getattr(item, "fixturenames", ())]
    config.hook.pytest_deselected(items=[item for item in items if item not in concerned])
    is_secured = SecuredAddresses.are_in_environment()
    for item in concerned:
        if "gssapi" in item.name:
            item.add_marker(pytest.mark.skip(reason=_NEEDS_KERBEROS))
        elif (item.get_closest_marker("ssl") or item.path.name == "test_sasl.py") and not is_secured:
            item.add_marker(pytest.mark.skip(reason=_NEEDS_ONE_BROKER))
    items[:] = concerned


@pytest.fixture(scope="class")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield loop
    if not loop.is_closed():
        loop.close()
    gc.collect()
    asyncio.set_event_loop(None)


@pytest.fixture(autouse=True)
def collect_garbage() -> Iterator[None]:
    """So that a warning of something left open is told with the test that left it."""
    yield
    gc.collect()


@pytest.fixture(scope="class")
def setup_test_class(request: pytest.FixtureRequest, loop: asyncio.AbstractEventLoop) -> None:
    host, port = os.environ["HEADRACE_BOOTSTRAP"].rsplit(":", 1)
    found = {"loop": loop, "kafka_host": host, "kafka_port": int(port), "hosts": [f"{host}:{port}"]}
    found["kafka_version"] = os.environ["HEADRACE_KAFKA_VERSION"]
    if SecuredAddresses.are_in_environment():
        addresses = SecuredAddresses.from_environment()
        found |= {"kafka_ssl_port": addresses.tls, "kafka_sasl_plain_port": addresses.sasl_plain}
        found |= {"kafka_sasl_ssl_port": addresses.sasl_tls, "ssl_folder": addresses.certificates}
        found |= {"acl_manager": AclManager(addresses), "kafka_config": KafkaConfig(addresses)}
    for name, value in found.items():
        setattr(request.cls, name, value)
