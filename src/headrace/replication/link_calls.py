"""What a link asks a Headrace cluster for besides Kafka's own APIs: a call in an Envelope, as brokers make them, by a
client that needs the permissions of a client."""

from uuid import UUID

from headrace.model.queue_state import StatePosition
from headrace.replication.calls import Call


class AskQueueState(Call, frozen=True):
    """What changed in the state of a queue since a position: a `StateChangesPage`. Needs READ on the queue's topic."""

    queue: str
    topic_id: UUID
    position: StatePosition
