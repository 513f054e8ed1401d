"""A worker that copies a topic exactly once: consume, produce, commit the offsets, in one transaction each 100 ms.

    python -m tests.faults.transformer BOOTSTRAP GROUP SOURCE TARGET NAME

Runs until it is killed, until something fatal makes it end, or until nothing happens for half a minute; whoever started
it starts it again.
"""

import faulthandler
import signal
import sys
import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

PERIOD_S = 0.1
PATIENCE_S = 20
STUCK_S = 30
RECONNECT = {
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 250,
    # librdkafka may hang when it forgets all brokers because none answers (its issues 5456 and 5511).
    "metadata.recovery.strategy": "none",
}


def run(bootstrap: str, group: str, source: str, target: str, name: str) -> None:
    consumer = Consumer(
        {
            **RECONNECT,
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.instance.id": name,
            "session.timeout.ms": 20_000,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    producer = Producer(
        {**RECONNECT, "bootstrap.servers": bootstrap, "transactional.id": f"{group}-{name}", "linger.ms": 5}
    )
    producer.init_transactions(PATIENCE_S)
    consumer.subscribe([source])
    while True:
        faulthandler.dump_traceback_later(STUCK_S, exit=True)
        try:
            transform(consumer, producer, target)
        except KafkaException as problem:
            error = problem.args[0]
            if error.fatal():
                raise
            if error.txn_requires_abort():
                producer.abort_transaction(PATIENCE_S)
                rewind(consumer)


def transform(consumer: Consumer, producer: Producer, target: str) -> None:
    messages = [message for message in consumer.consume(5000, PERIOD_S) if message.error() is None]
    if not messages:
        return
    producer.begin_transaction()
    until = time.monotonic() + PERIOD_S
    while messages:
        for message in messages:
            producer.produce(target, message.value(), partition=message.partition())
        producer.poll(0)
        if time.monotonic() >= until:
            break
        messages = [message for message in consumer.consume(5000, 0.01) if message.error() is None]
    positions = [place for place in consumer.position(consumer.assignment()) if place.offset >= 0]
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), PATIENCE_S)
    while True:
        try:
            producer.commit_transaction(PATIENCE_S)
            return
        except KafkaException as problem:
            if not problem.args[0].retriable():
                raise


def rewind(consumer: Consumer) -> None:
    """Read again from what was committed."""
    for place in consumer.committed(consumer.assignment(), PATIENCE_S):
        consumer.seek(TopicPartition(place.topic, place.partition, max(0, place.offset)))


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1)
    run(*sys.argv[1:])
