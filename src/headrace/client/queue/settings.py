"""Translates the keyword arguments of `Queue.create` and `Queue.alter` to the settings `queue.*`."""

from collections.abc import Mapping
from typing import Literal, TypedDict

from headrace.client.errors import QueueFailed
from headrace.client.queue.message import Seconds, seconds
from headrace.config.queue import PREFIX, QUEUE_SETTINGS
from headrace.config.settings import did_you_mean
from headrace.model.errors import SettingsError


class QueueOptions(TypedDict, total=False):
    """The keyword arguments of `Queue.create` and `Queue.alter`."""

    type: Literal["standard", "fifo"] | None
    """fifo: in order within a group, without duplicates. Cannot be changed later."""
    visibility: Seconds | None
    """How long a message that was received is hidden from others; 30 seconds by default."""
    delay: Seconds | None
    """How long a message is hidden after it was sent."""
    retention: Seconds | None
    """A message that is not acknowledged is deleted after this time; 4 days by default."""
    max_receives: int | None
    """A message that was received this often and not acknowledged goes to the dead-letter queue."""
    dead_letter: str | None
    """The queue for them; made with this one if it is not there."""
    backoff: Seconds | None
    """How long a message is hidden after its first failure; further failures double it."""
    backoff_factor: float | None
    backoff_max: Seconds | None
    """15 minutes by default."""
    jitter: float | None
    """The share of the backoff that is added or taken off at random; 0.2 by default."""
    priority_ageing: Seconds | None
    """A message that has waited this long counts as one level more urgent; without it, strictly by priority."""
    dedupe_by_content: bool | None
    """In a fifo queue: messages with the same body within 5 minutes are one, unless they have ids."""
    max_in_flight: int | None
    max_backlog: int | None
    """The most messages that are not acknowledged: available, in flight and delayed."""
    max_backlog_bytes: int | None
    max_backlog_age: Seconds | None
    """The largest age of the oldest message."""
    max_backlog_policy: Literal["block", "refuse", "drop-oldest"] | None
    """What happens at these bounds: senders wait, or get `BacklogFull`, or the oldest messages are dropped."""
    settings: Mapping[str, str] | None
    """Any others by their names, such as `queue.max.message.bytes`."""


_DURATIONS = {
    "visibility": "visibility.timeout.ms",
    "delay": "delay.ms",
    "retention": "retention.ms",
    "backoff": "retry.backoff.ms",
    "backoff_max": "retry.backoff.max.ms",
    "priority_ageing": "priority.ageing.ms",
    "max_backlog_age": "max.backlog.age.ms",
}
_OTHERS = {
    "type": "type",
    "max_receives": "max.receives",
    "dead_letter": "dead.letter",
    "backoff_factor": "retry.backoff.factor",
    "jitter": "retry.jitter",
    "dedupe_by_content": "dedupe.by.content",
    "max_in_flight": "max.in.flight",
    "max_backlog": "max.backlog.messages",
    "max_backlog_bytes": "max.backlog.bytes",
    "max_backlog_policy": "max.backlog.policy",
}


def settings_of(options: QueueOptions) -> dict[str, str]:
    """The settings by their names without `queue.`; options that are None count as not given. Raises `TypeError` for an
    option that there is not."""
    found: dict[str, str] = {}
    for name, value in options.items():
        if value is None:
            continue
        if name == "settings":
            for setting, text in (options["settings"] or {}).items():
                found[known(setting)] = text
        elif name in _DURATIONS:
            found[_DURATIONS[name]] = str(round(seconds(value) * 1000))  # type: ignore[arg-type]
        elif name in _OTHERS:
            found[_OTHERS[name]] = str(value).lower() if isinstance(value, bool) else str(value)
        else:
            there = [*_OTHERS, *_DURATIONS, "settings"]
            hint = did_you_mean(name, there) or f": there are {', '.join(there)}"
            raise TypeError(f"a queue has no option {name}{hint}")
    return found


def known(setting: str) -> str:
    """The name of a setting of queues without `queue.`; `ValueError` if there is none."""
    name = setting.removeprefix(PREFIX)
    if PREFIX + name not in QUEUE_SETTINGS:
        hint = did_you_mean(PREFIX + name, QUEUE_SETTINGS) or "; docs/settings.md lists those there are"
        raise ValueError(f"queues have no setting {setting}{hint}")
    return name


def check(settings: Mapping[str, str]) -> None:
    """`QueueFailed` for a value that a setting cannot have, as a broker would say it: before anything is made."""
    try:
        for name, text in settings.items():
            QUEUE_SETTINGS[PREFIX + name].parse(text)
    except SettingsError as error:
        raise QueueFailed(str(error), code=type(error).__name__) from None
