"""The work of `headrace schedule`, through the SDK."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from headrace.cli.errors import CommandFailed
from headrace.cli.names import no_such
from headrace.cli.output import count, print_json, say, table
from headrace.cli.queue.run import queue_client
from headrace.client.public import ScheduleDescription, Schedules
from headrace.client.schedules import DEAD_PREFIX, PREFIX


def show_schedules(bootstrap: str, http: str, *, as_json: bool) -> None:
    with queue_client(bootstrap, http) as client:
        found = client.schedules.list()
    if as_json:
        print_json([each.as_dict() for each in found])
    elif not found:
        say("There are no schedules; a worker with @client.every or @client.cron makes one (docs/periodic.md)")
    else:
        names = ("WAITING", "RUNNING", "FAILED")
        columns = [(name, "left") for name in ("SCHEDULE", "RULE", "TIME ZONE", "NEXT DUE", "LAST DUE")]
        table(None, columns + [(name, "right") for name in names], [_row(each) for each in found])


def run_schedule(bootstrap: str, http: str, name: str) -> None:
    with _existing(bootstrap, http, name) as schedules:
        schedules.run(name)
    print(f"{name} runs as soon as one of its workers is free")


def remove_schedule(bootstrap: str, http: str, name: str) -> None:
    with _existing(bootstrap, http, name) as schedules:
        left = schedules.remove(name)
    print(f"Removed the schedule {name}")
    if left:
        say(f"{count(left, 'failed run')} of it stay in the queue {DEAD_PREFIX}{name.removeprefix(PREFIX)}")


@contextmanager
def _existing(bootstrap: str, http: str, name: str) -> Iterator[Schedules]:
    """The schedules, if there is one of this name."""
    with queue_client(bootstrap, http) as client:
        names = [each.name for each in client.schedules.list()]
        if name.removeprefix(PREFIX) not in names:
            raise CommandFailed(no_such("schedule", name, names, "headrace schedule list"))
        yield client.schedules


def _row(found: ScheduleDescription) -> tuple[str, ...]:
    counts = (found.waiting, found.running, found.failed)
    due = (_time(found.next_due), _time(found.last_due))
    return (found.name, found.rule, found.timezone, *due, *("-" if each is None else f"{each:,}" for each in counts))


def _time(at: datetime | None) -> str:
    return "never" if at is None else at.isoformat(sep=" ", timespec="seconds")
