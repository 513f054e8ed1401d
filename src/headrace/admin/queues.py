"""Queues: the list, one with its settings and its last hour; created, changed, purged and deleted."""

from dataclasses import asdict
from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.admin.errors import AdminError
from headrace.admin.history import HistoryView, history_of
from headrace.admin.pages import Listing, Page, PageQuery
from headrace.admin.routes import CREATE_QUEUE, SHOWN_QUEUES, AdminReply, AdminRequest, queue_need, route
from headrace.admin.settings import ChangedSettings, SettingChange, SettingChanges, SettingEntry
from headrace.config.queue import NO_QUEUE, PREFIX, QUEUE_SETTINGS, queue_settings
from headrace.model.acls import AclOperation
from headrace.model.errors import InvalidSettings, SettingsError
from headrace.monitor.snapshots import QueueStat
from headrace.queues.api import QueueEdit, QueueInfo

_FIFO = ".fifo"
_HIDDEN = ("attributes",)
_READ_ONLY = ("type",)
_CREATED, _MODIFIED = "CreatedTimestamp", "LastModifiedTimestamp"
"""As the SQS API stores and shows them."""

DESCRIBE_QUEUE = queue_need(AclOperation.DESCRIBE, "GetQueueAttributes")
ALTER_QUEUE_CONFIGS = queue_need(AclOperation.ALTER_CONFIGS, "SetQueueAttributes")
PURGE_QUEUE = queue_need(AclOperation.DELETE, "PurgeQueue")
DELETE_QUEUE = queue_need(AclOperation.DELETE, "DeleteQueue")


class QueueEntry(msgspec.Struct, frozen=True):
    queue: str
    fifo: bool
    visible: int | None
    """Null, as the other counts, if the queue's broker has not answered."""
    in_flight: int | None
    delayed: int | None
    oldest_age_s: float | None
    """The age of the oldest message that is not deleted; null if there is none."""
    trend: str
    dead_letter_queue: str | None
    dead_letters: int | None
    """Messages in its dead-letter queue."""
    dead_letters_of: list[str]
    """The queues whose dead-letter queue it is."""
    sent_per_s: float
    received_per_s: float
    deleted_per_s: float
    size_bytes: int
    leader: int


class QueueView(QueueEntry, frozen=True, kw_only=True):
    last_received_ms: int | None
    settings: list[SettingEntry]
    history: HistoryView


def queue_entry(found: QueueStat) -> QueueEntry:
    return QueueEntry(
        queue=found.queue,
        fifo=found.fifo,
        visible=found.visible,
        in_flight=found.in_flight,
        delayed=found.delayed,
        oldest_age_s=found.oldest_age_s,
        trend=found.trend,
        dead_letter_queue=found.dead_letter_queue,
        dead_letters=found.dead_letters,
        dead_letters_of=found.dead_letters_of,
        sent_per_s=found.sent_per_s,
        received_per_s=found.received_per_s,
        deleted_per_s=found.deleted_per_s,
        size_bytes=found.size_bytes,
        leader=found.leader,
    )


_QUEUES: Listing[QueueStat, QueueEntry] = Listing(QueueEntry, queue_entry, name="queue")


@route("GET", "/queues", needs=SHOWN_QUEUES, query=PageQuery, answer=Page[QueueEntry])
async def list_queues(request: AdminRequest) -> AdminReply:
    """The queues of the cluster, with their counts."""
    return AdminReply(_QUEUES.page(await shown_queues(request), request.query(PageQuery)))


async def shown_queues(request: AdminRequest) -> list[QueueStat]:
    """The queues that the person may see."""
    found = await request.services.monitor.queues()
    if request.services.security.authorizer is None:
        return found
    sees, subject = request.services.queue_access.sees, request.subject
    visible = {info.name for info in request.services.queues.queues() if sees(subject, info)}
    return [each for each in found if each.queue in visible]


class NewQueue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=80)]
    """The name of a fifo queue ends in .fifo."""
    settings: dict[str, str] = {}
    """As `visibility.timeout.ms`, with or without `queue.` before it."""


@route("POST", "/queues", needs=CREATE_QUEUE, body=NewQueue, answer=QueueView)
async def create_queue(request: AdminRequest) -> AdminReply:
    """Create a queue. One that exists with the same settings is fine."""
    wanted, services = request.read(NewQueue), request.services
    services.queue_access.check(request.subject, AclOperation.CREATE, wanted.name, CREATE_QUEUE.actions)
    settings = _plain(wanted.settings)
    settings["type"] = "fifo" if wanted.name.endswith(_FIFO) else "standard"
    _check_dead_letter(request, settings)
    now = str(services.clock.wall_ms() // 1000)
    await services.queues.create(wanted.name, QueueEdit(settings, {_CREATED: now, _MODIFIED: now}))
    return AdminReply(await _view(request, wanted.name), 201)


@route("GET", "/queues/{queue}", needs=DESCRIBE_QUEUE, answer=QueueView)
async def describe_queue(request: AdminRequest) -> AdminReply:
    """A queue with its counts, settings and last hour."""
    return AdminReply(await _view(request, request.parameters["queue"]))


async def _view(request: AdminRequest, name: str) -> QueueView:
    info = request.services.queues.find(name)
    found = await request.services.monitor.queue(name)
    if found is None:
        found = QueueStat(name, info.settings.is_fifo, -1, info.settings.dead_letter or None)
    return QueueView(
        **msgspec.structs.asdict(queue_entry(found)),
        last_received_ms=found.last_received_ms,
        settings=_settings(info),
        history=await history_of(request, "queue", name),
    )


def _settings(info: QueueInfo) -> list[SettingEntry]:
    values, defaults = asdict(info.settings), asdict(NO_QUEUE)
    return [
        SettingEntry(
            name=PREFIX + field.replace("_", "."),
            value=_text(value),
            default=_text(defaults[field]),
            is_default=value == defaults[field],
            source="default" if value == defaults[field] else "queue",
            doc=QUEUE_SETTINGS[PREFIX + field.replace("_", ".")].doc,
            type=QUEUE_SETTINGS[PREFIX + field.replace("_", ".")].kind.name.lower(),
            is_read_only=field in _READ_ONLY,
            choices=list(QUEUE_SETTINGS[PREFIX + field.replace("_", ".")].choices),
        )
        for field, value in values.items()
        if field not in _HIDDEN
    ]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@route("PATCH", "/queues/{queue}/settings", needs=ALTER_QUEUE_CONFIGS, body=SettingChanges, answer=ChangedSettings)
async def change_queue_settings(request: AdminRequest) -> AdminReply:
    """Change settings of a queue, all or none; with `dry_run` only check it and show what would change."""
    name, wanted = request.parameters["queue"], request.read(SettingChanges)
    info = request.services.queues.find(name)
    changes: dict[str, str | None] = {**_plain(wanted.set), **dict.fromkeys(_plain(dict.fromkeys(wanted.reset, "")))}
    if "type" in changes:
        raise InvalidSettings("the type of a queue cannot be changed: create another queue")
    _check_dead_letter(request, changes)
    before = {each.name.removeprefix(PREFIX): each.value for each in _settings(info)}
    shown = [SettingChange(PREFIX + each, before.get(each), text) for each, text in changes.items()]
    if wanted.dry_run:
        _check_values(info, changes)
    else:
        now = str(request.services.clock.wall_ms() // 1000)
        await request.services.queues.alter(name, QueueEdit(changes, {_MODIFIED: now}))
    return AdminReply(ChangedSettings(shown, wanted.dry_run))


def _plain(settings: dict[str, str]) -> dict[str, str]:
    """Settings by their names without `queue.`."""
    found = {name.removeprefix(PREFIX): text for name, text in settings.items()}
    unknown = sorted(name for name in found if PREFIX + name not in QUEUE_SETTINGS or name in _HIDDEN)
    if unknown:
        raise InvalidSettings(f"there is no setting {PREFIX}{unknown[0]} of queues that can be changed here")
    return found


def _check_values(info: QueueInfo, changes: dict[str, str | None]) -> None:
    given = {PREFIX + name: text for name, text in changes.items() if text is not None}
    try:
        queue_settings({f"{PREFIX}type": info.settings.type, **given})
    except SettingsError as error:
        raise InvalidSettings(str(error)) from None


def _check_dead_letter(request: AdminRequest, settings: "dict[str, str] | dict[str, str | None]") -> None:
    """Messages are sent to the dead-letter queue on behalf of the person who sets it."""
    target = settings.get("dead.letter")
    if not target:
        return
    request.services.queue_access.check(request.subject, AclOperation.WRITE, target, ("SendMessage",))
    request.services.queues.find(target)


@route("POST", "/queues/{queue}/purge", needs=PURGE_QUEUE)
async def purge_queue(request: AdminRequest) -> AdminReply:
    """Delete all messages of a queue."""
    await request.services.queues.purge(request.parameters["queue"])
    return AdminReply(None, 204)


@route("DELETE", "/queues/{queue}", needs=DELETE_QUEUE)
async def delete_queue(request: AdminRequest) -> AdminReply:
    """Delete a queue and everything in it."""
    name, queues = request.parameters["queue"], request.services.queues
    users = [each.name for each in queues.queues() if each.settings.dead_letter == name and each.name != name]
    if users:
        raise AdminError(409, "in_use", f"{name} is the dead-letter queue of {users[0]}: change that first")
    await queues.delete(name)
    return AdminReply(None, 204)
