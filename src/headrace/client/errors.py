"""The exceptions of the SDK.

HeadraceError
└── ClientError
    ├── Unreachable           no broker answers
    ├── NotAuthenticated      a broker refuses the user, token or certificate, or its own is not trusted
    ├── DeliveryFailed        a message was not acknowledged; it may or may not be stored
    │   └── BacklogFull       the topic or queue takes no more for now; the message is not stored
    ├── ConsumeFailed         reading cannot go on: no permission, a fatal error of the group
    ├── HandlerFailed         a handler failed for good and has no dead-letter topic; nothing was skipped
    ├── TopicFailed           a topic could not be created, altered or deleted
    │   └── NoSuchTopic
    ├── QueueFailed           a queue refused a request
    │   ├── NoSuchQueue
    │   └── LeaseLost         a message is not leased to us any more: its time was over, or it was purged
    ├── CallFailed            a task that was called was dead-lettered: its worker failed at the last attempt
    ├── SchemaFailed          the schema registry refused a request: no such subject, an incompatible schema
    ├── InvalidMessage        a value does not fit its schema or type; in a handler the message is dead-lettered
    └── TransactionFailed
        └── Fenced            another process with the same transactional id took over; this one must end

`Reject` and `Retry` go the other way: a handler or a worker raises them to decide what happens to a message.
"""

from headrace.model.errors import HeadraceError


class ClientError(HeadraceError):
    """The base of every error of the SDK.

    ```python
    from headrace import ClientError

    try:
        client.publish("orders", {"item": "tea"})
    except ClientError as error:
        print("not sent:", error)
    ```
    """


class Unreachable(ClientError):
    """No broker answers at the addresses that the client was given.

    The message names each address and what went wrong there.

    ```python
    from headrace import Client, Unreachable

    try:
        Client("127.0.0.1:1", connect_timeout=0.2).publish("orders", "tea")
    except Unreachable as error:
        print(error)
    ```
    """


class NotAuthenticated(ClientError):
    """A broker refuses the user, the token or the certificate of the client, or its own certificate is not trusted.

    The client raises it at the first call. A password that becomes wrong later is logged, and tried again.

    ```python
    from headrace import Client, NotAuthenticated
    from headrace.testing import Broker

    with Broker(users={"alice": "correct horse"}) as broker:
        try:
            Client(broker.bootstrap, user="alice", password="wrong").publish("orders", "tea")
        except NotAuthenticated as error:
            print(error)
    ```
    """


class DeliveryFailed(ClientError):
    """The broker refused messages, or did not acknowledge them in time. `code` is Kafka's name of the error.

    ```python
    from headrace import DeliveryFailed

    try:
        client.publish("orders", b"x" * 2_000_000)
    except DeliveryFailed as error:
        print(error.code, error)
    ```
    """

    def __init__(self, text: str, *, code: str, count: int = 1) -> None:
        super().__init__(text)
        self.code = code
        """The name of the Kafka error, such as `MSG_SIZE_TOO_LARGE`."""
        self.count = count


class BacklogFull(DeliveryFailed):
    """The topic or queue takes no more messages for now. The messages are not stored.

    Its backlog is at its bound, and its policy is `refuse`, or topics with its prefix store as much as their quota
    allows.
    The text says which bound it is. Send again when consumers have caught up, start more of them, or raise the bound.

    ```python
    from headrace import BacklogFull

    jobs = client.queue("jobs").create(max_backlog=1000, max_backlog_policy="refuse")
    try:
        jobs.send("resize a picture")
    except BacklogFull as error:
        print("busy, try later:", error)
    ```
    """


class ConsumeFailed(ClientError):
    """A stream cannot continue, for example because the group refused the member for good.

    ```python
    from headrace import ConsumeFailed

    try:
        with client.consume("orders", group="billing") as orders:
            next(orders).ack()
    except ConsumeFailed as error:
        print("stopped reading:", error)
    ```
    """


class HandlerFailed(ClientError):
    """A handler failed on its last attempt and has no dead-letter topic. No message was skipped.

    ```python
    from headrace import Backoff, HandlerFailed


    @client.handler("orders", group="strict", retry=Backoff(attempts=1))
    def bill(order):
        raise ValueError("no price")


    try:
        client.run()
    except HandlerFailed as error:
        print(error)
    ```
    """


class TransactionFailed(ClientError):
    """A transaction was not committed, and retrying it did not help. Its messages are delivered again.

    ```python
    from headrace import TransactionFailed

    try:
        with client.consume("orders", group="copy", delivery="exactly-once") as orders:
            orders.publish("copies", next(orders).payload)
    except TransactionFailed as error:
        print("rolled back:", error)
    ```
    """


class Fenced(TransactionFailed):
    """Another process with the same transactional id took over; this one must stop.

    ```python
    from headrace import Fenced

    try:
        with client.consume("orders", group="copy", delivery="exactly-once", transactional_id="copy-1") as orders:
            orders.publish("copies", next(orders).payload)
    except Fenced:
        raise SystemExit("copy-1 runs elsewhere") from None
    ```
    """


class TopicFailed(ClientError):
    """The broker refused to create, alter or delete a topic. `code` is Kafka's name of the error.

    ```python
    from headrace import TopicFailed

    try:
        client.topics.create("orders")
    except TopicFailed as error:
        print(error.code)  # TOPIC_ALREADY_EXISTS
    ```
    """

    def __init__(self, text: str, *, code: str) -> None:
        super().__init__(text)
        self.code = code
        """The name of the Kafka error, such as `TOPIC_ALREADY_EXISTS`."""


class NoSuchTopic(TopicFailed):
    """There is no topic of this name.

    ```python
    from headrace import NoSuchTopic

    try:
        client.topics.describe("oders")
    except NoSuchTopic as error:
        print(error)
    ```
    """


class QueueFailed(ClientError):
    """The broker refused a call of a queue. `code` names the reason.

    ```python
    from headrace import QueueFailed

    try:
        client.queue("emails").create(max_receives=7, dead_letter="emails-dead")
    except QueueFailed as error:
        print(error.code, error)  # the queue exists with other settings: use alter
    ```
    """

    def __init__(self, text: str, *, code: str) -> None:
        super().__init__(text)
        self.code = code
        """The name of the reason, such as `PurgeInProgress`."""


class NoSuchQueue(QueueFailed):
    """There is no queue of this name. Sending does not create one.

    ```python
    from headrace import NoSuchQueue

    try:
        client.queue("emials").send("hello")
    except NoSuchQueue as error:
        print(error)
    ```
    """


class LeaseLost(QueueFailed):
    """The lease of a message has ended, so another receiver may have the message.

    ```python
    from headrace import LeaseLost

    (message,) = emails.receive(max=1)
    message.ack().result()
    try:
        message.extend(60)
    except LeaseLost:
        print("stop working on it")
    ```
    """


class CallFailed(ClientError):
    """A task that was sent with `Queue.call` was dead-lettered: its worker raised at the last attempt, or rejected it.

    The text is the reason that the dead letter has.

    ```python
    from headrace import CallFailed

    parcels = client.queue("parcels").create(max_receives=1, dead_letter="parcels-dead")


    @parcels.worker()
    def deliver(message):
        raise ValueError("no such address")


    with client.running():
        try:
            parcels.call({"to": "alice"}).result(timeout=30)
        except CallFailed as error:
            print(error.exception_type, error.exception_message)  # ValueError no such address
    ```
    """

    def __init__(self, text: str, *, exception_type: str | None, exception_message: str | None, attempts: int) -> None:
        super().__init__(text)
        self.exception_type = exception_type
        """The name of the worker's exception, such as `ValueError`; None if the worker raised none, but was killed."""
        self.exception_message = exception_message
        self.attempts = attempts
        """How often it was tried."""


class Reject(Exception):
    """Raise it in a handler or a worker to dead-letter the message at once, without further retries.

    ```python
    from headrace import Reject


    @client.handler("orders", group="billing", dead_letter="orders.dlq")
    def bill(order):
        if "item" not in order.json():
            raise Reject("not an order")
    ```
    """


class SchemaFailed(ClientError):
    """The schema registry refused a request. `code` is its number of the error, such as 40401 for an unknown subject.

    ```python
    from headrace import SchemaFailed

    try:
        client.schemas.latest("oders-value")
    except SchemaFailed as error:
        print(error.code, error)
    ```
    """

    def __init__(self, text: str, *, code: int) -> None:
        super().__init__(text)
        self.code = code
        """The number of the error, as Confluent's registry has it."""


class InvalidMessage(ClientError, Reject):
    """A value does not fit its schema, or a message is not of the type that was asked for.

    A handler or worker with `type=` raises it before your function is called. It is a `Reject`: no retry makes such a
    message readable, so it is dead-lettered with the reason.

    ```python
    from headrace import InvalidMessage

    client.publish("orders", {"item": "tea"})
    (*_, order) = client.replay("orders", type=dict[str, int])
    try:
        print(order.value)
    except InvalidMessage as error:
        print(error)
    ```
    """


class Retry(Exception):
    """Raise it in a worker of a queue to retry the message after `delay` seconds.

    Without a delay the queue's retry policy decides.

    ```python
    from headrace import Retry


    @emails.worker(concurrency=8)
    def send_email(message):
        raise Retry("the mail server is busy", delay=60)
    ```
    """

    def __init__(self, reason: str = "", *, delay: float | None = None) -> None:
        super().__init__(reason)
        self.delay = delay
