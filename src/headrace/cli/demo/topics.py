"""The parts of the tour that need one broker and nothing else: a topic, and a queue with retries and a dead letter."""

import time

from headrace.cli.demo.output import DemoOutput
from headrace.cli.demo.processes import TourBroker
from headrace.cli.errors import CommandFailed
from headrace.cli.output import table
from headrace.client.public import Client, PeekedMessage, Queue, QueueMessage

_ORDERS = (("alice", "tea"), ("bob", "coffee"), ("alice", "cake"))
_MAILS = ("alice", "bob", "carol")
_MAX_RECEIVES = 3
_BACKOFF_S = 0.3
_PATIENCE_S = 30.0


def show_topics(voice: DemoOutput, broker: TourBroker, bootstrap: str) -> None:
    with Client(bootstrap) as client:
        for key, value in _ORDERS:
            stored = client.publish("greetings", value, key=key)
            voice.say(f"   {key}: {value} is on disk, at offset {stored.offset} of partition {stored.partition}")
    broker.kill()
    voice.say("   The broker was ended with kill -9, and starts again …")
    with voice.waiting_for("the broker"):
        broker.start()
    with Client(bootstrap) as client:
        found = [(message.key.decode() if message.key else "", message.text) for message in client.replay("greetings")]
    table(None, [("   KEY", "left"), ("VALUE", "left")], [(f"   {key}", value) for key, value in found])
    if sorted(found) != sorted(_ORDERS):
        raise CommandFailed(f"{_ORDERS} were published and {found} were read: please report this as a defect")
    voice.say("   Everything is there: headrace topic create, produce and consume do this from a shell.")


def show_queue(voice: DemoOutput, bootstrap: str) -> None:
    with Client(bootstrap) as client:
        queue = client.queue("emails").create(
            max_receives=_MAX_RECEIVES, dead_letter="emails-dead", backoff=_BACKOFF_S, jitter=0
        )
        queue.send_many([{"to": name} for name in _MAILS])
        with voice.waiting_for("a retry"):
            letter = _work(voice, queue, client.queue("emails-dead"))
    if letter.json() != {"to": "carol"}:
        raise CommandFailed(f"{letter.json()} is the dead letter: please report this as a defect of Headrace")
    voice.say(f"   The dead letter in emails-dead: {letter.text}, because of: {letter.reason}")
    voice.say("   `headrace queue redrive emails-dead` sends it back when the address is right.")


def _work(voice: DemoOutput, queue: Queue, dead: Queue) -> PeekedMessage:
    """Handle messages until all but one are delivered; that one, from the queue of dead letters."""
    deadline_s = time.monotonic() + _PATIENCE_S
    delivered = 0
    while time.monotonic() < deadline_s:
        for message in queue.receive(max=10, wait=0.3):
            delivered += _deliver(voice, message)
        if delivered == len(_MAILS) - 1 and (letters := dead.peek()):
            return letters[0]
    raise CommandFailed(f"the messages were not handled within {_PATIENCE_S:.0f} s")


def _deliver(voice: DemoOutput, message: QueueMessage) -> bool:
    """Whether it succeeds: alice's mail does, bob's at the second attempt, carol's never."""
    name = message.json()["to"]
    reason = {"bob": "mailbox is full" if message.attempt == 1 else "", "carol": "no such address"}.get(name, "")
    voice.say(f"   mail to {name}, attempt {message.attempt} of {_MAX_RECEIVES}: {reason or 'delivered'}")
    settled = message.nack(reason=reason) if reason else message.ack()
    settled.result()
    return not reason
