"""A worker that copies a topic with the SDK, as users write it.

    python -m tests.faults.sdk_worker BOOTSTRAP GROUP SOURCE TARGET NAME DELIVERY

Runs until it is told to stop or killed, or until something fatal makes it end; whoever started it starts it again.
"""

import faulthandler
import signal
import sys
from typing import Any

from headrace import Client, Message, Outgoing

BATCH = 100
"""At most once: what a crash may cost."""


def handle(client: Client, group: str, source: str, target: str, **options: Any) -> None:
    """What the handler returns is stored before its message is committed, or in one transaction with that."""

    @client.handler(source, group=group, workers=2, **options)
    def copy(message: Message) -> Outgoing:
        return Outgoing(target, message.payload, partition=message.partition)

    client.run()


def stream(client: Client, group: str, source: str, target: str) -> None:
    """At most once: a batch is committed before it is handed over, and written before the next one is."""
    with client.consume(source, group, "at-most-once", batch=BATCH) as messages:
        signal.signal(signal.SIGTERM, lambda *_: messages.stop())
        while not messages.is_over:
            for message in messages.take(BATCH, timeout_s=0.2):
                client.publish_soon(target, message.payload, partition=message.partition)
            client.flush()


def run(bootstrap: str, group: str, source: str, target: str, name: str, delivery: str) -> None:
    # With a name that it keeps, a worker that was killed has its partitions again as soon as it is back.
    settings = {"group.instance.id": name, "session.timeout.ms": 20_000, "reconnect.backoff.max.ms": 250}
    with Client(bootstrap, settings=settings) as client:
        if delivery == "at-most-once":
            stream(client, group, source, target)
        elif delivery == "at-least-once":
            handle(client, group, source, target, delivery="at-least-once")
        else:
            handle(client, group, source, target, delivery="exactly-once", transactional_id=f"{group}-{name}")


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1)
    run(*sys.argv[1:])
