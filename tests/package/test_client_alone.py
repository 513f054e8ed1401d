"""The SDK needs two packages, whatever else the broker needs: it works where nothing but those can be imported."""

import subprocess
import sys

import pytest

from headrace.testing import Broker

from .test_dependencies import required

pytestmark = pytest.mark.xdist_group("package")

NEEDED = {"confluent_kafka", "msgspec"}

PROGRAM = """
import asyncio
import sys

HIDDEN = set(sys.argv[2:])

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())

import headrace
import headrace.aio

async def publish():
    async with headrace.aio.Client(sys.argv[1]) as client:
        await client.publish("orders", {"item": "cake"})

with headrace.Client(sys.argv[1]) as client:
    client.publish("orders", {"item": "tea"})
    asyncio.run(publish())
    found = []
    for order in client.consume("orders", group="billing"):
        client.ack(order)
        found.append(order.json()["item"])
        if len(found) == 2:
            break
    emails = client.queue("emails")
    emails.create()
    emails.send("hello")
    (message,) = emails.receive(wait=60)
    message.ack()
    found.append(message.text)
    print(*sorted(found))
print(*sorted({name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names))
"""


def test_the_sdk_works_without_the_packages_of_the_broker(headrace_broker: Broker) -> None:
    hidden = required() - NEEDED
    assert {"starlette", "kio", "uvloop"} <= hidden
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, headrace_broker.bootstrap, *hidden, "aetcd", "grpc", "hypothesis"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found, modules = done.stdout.splitlines()
    assert found == "cake hello tea"
    assert not set(modules.split()) & hidden
