"""What can go wrong between a client and its brokers. `str(error)` is one sentence for a person.

WireError
├── Unreachable           nobody answers: wrong address, no broker there, or the connection broke
├── TimedOut              a broker took a request and did not answer in time
├── NotKafka              something answers that does not speak the protocol
├── Unsupported           the broker is too old for what is asked
└── Refused               the broker answered with an error; `code` says which
    ├── Unready           a passing state (no leader, coordinator loading …) that did not pass in time
    ├── UnknownTopic      no such topic or partition
    ├── OffsetOutOfRange  an offset that the log does not have (any more, or yet)
    ├── Fenced            a newer producer has the transactional id, or the transaction took too long
    └── TransactionLost   the transaction is not in a state where this can be done

Errors survive pickling, as Spark's workers need.
"""

from kio.schema.errors import ErrorCode as ErrorCode

from headrace.model.errors import HeadraceError


class WireError(HeadraceError):
    """Base of what this package raises."""


class BrokerUnreachable(WireError): ...


class TimedOut(WireError): ...


class NotKafka(WireError):
    def __init__(self, message: str, sample: bytes = b"") -> None:
        super().__init__(message)
        self.sample = sample
        """How the answer began, if there was one."""


class Unsupported(WireError): ...


class Refused(WireError):
    def __init__(self, message: str, code: ErrorCode = ErrorCode.unknown_server_error) -> None:
        super().__init__(message)
        self.code = code


class Unready(Refused): ...


class TopicNotFound(Refused): ...


class OffsetGone(Refused): ...


class ProducerFenced(Refused): ...


class TransactionLost(Refused): ...


PASSING = (BrokerUnreachable, TimedOut, Unready)
"""Errors after which the same request may well succeed."""

_UNREADY = frozenset(code for code in ErrorCode if code.retriable) - {
    ErrorCode.corrupt_message,
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.unknown_topic_id,
}
_CLASSES: dict[ErrorCode, type[Refused]] = {
    ErrorCode.unknown_topic_or_partition: TopicNotFound,
    ErrorCode.unknown_topic_id: TopicNotFound,
    ErrorCode.offset_out_of_range: OffsetGone,
    ErrorCode.producer_fenced: ProducerFenced,
    ErrorCode.invalid_producer_epoch: ProducerFenced,
    ErrorCode.invalid_txn_state: TransactionLost,
    ErrorCode.invalid_producer_id_mapping: TransactionLost,
    ErrorCode.transaction_abortable: TransactionLost,
    ErrorCode.transactional_id_not_found: TransactionLost,
}


def refusal(what: str, code: int, message: str | None = None) -> Refused:
    """The error for a code that a broker answered with. `what` says what was asked: "fetching orders-0"."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return Refused(f"{what} failed: the broker answers with the unknown error {code}")
    reason = f"{known.name.upper()}: {message}" if message else known.name.upper()
    kind = Unready if known in _UNREADY else _CLASSES.get(known, Refused)
    return kind(f"{what} failed: the broker answers {reason}", known)


def check(what: str, code: int, message: str | None = None) -> None:
    """Raise what `code` stands for, unless it is none."""
    if code:
        raise refusal(what, code, message)
