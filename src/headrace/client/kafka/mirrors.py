"""Which topics are mirrors of topics of other clusters, for `everywhere=True`.

The name of a mirror topic ends with the name of its source topic, and its read-only setting `mirror.source` has the
cluster and the topic that it is copied from. So only topics whose names end that way are described.

Limits: mirrors are looked for every `LOOK_EVERY_S`; at most `MAX_CANDIDATES` topics are described. Those seen before
are described again at each sixth look only.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from headrace.client.errors import ClientError, TopicFailed, Unreachable
from headrace.client.kafka.librdkafka import UNREACHABLE, create_client, explain, log
from headrace.model.provenance import MIRROR_SOURCE

LOOK_EVERY_S = 10.0
MAX_CANDIDATES = 2_000
_PER_REQUEST = 200
_ALL_EVERY = 6
_TIMEOUT_S = 10.0
_GRACE_S = 2.0
_GONE = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}

Mirrors = Mapping[str, str]
"""The id of the source cluster of each mirror topic, by its name here."""


class MirrorFinder:
    """Finds the mirrors of topics of these names. Belongs to one thread at a time."""

    def __init__(self, use_admin: Callable[[], AdminClient], bootstrap: str, names: Sequence[str]) -> None:
        self._use_admin = use_admin
        self._bootstrap = bootstrap
        self._names = tuple(names)
        self._sources: dict[str, str | None] = {}
        """Of the topics that were described: cluster and topic, None if it is no mirror."""
        self._looks = 0
        self._warned: set[str] = set()

    def look(self) -> Mirrors:
        """The mirrors that there are now. Raises `Unreachable` or `TopicFailed`."""
        try:
            admin = self._use_admin()
            there = admin.list_topics(timeout=_TIMEOUT_S).topics
            candidates = self._candidates(there)
            before = {} if self._looks % _ALL_EVERY == 0 else self._sources
            self._sources = {each: before[each] for each in candidates if each in before}
            new = [each for each in candidates if each not in before]
            for first in range(0, len(new), _PER_REQUEST):
                self._sources.update(self._described(admin, new[first : first + _PER_REQUEST]))
        except TimeoutError:
            raise Unreachable(f"finding mirror topics failed: no broker answers at {self._bootstrap}") from None
        except KafkaException as failure:
            error = failure.args[0]
            text = f"finding mirror topics failed: {explain(error, self._bootstrap)}"
            if error.code() in UNREACHABLE:
                raise Unreachable(text) from None
            raise TopicFailed(text, code=str(error.name())) from None
        self._looks += 1
        return dict(self._found())

    def _found(self) -> Iterator[tuple[str, str]]:
        for name, source in self._sources.items():
            cluster_id, _, topic = (source or "").rpartition("/")
            if topic in self._names:
                yield name, cluster_id

    def _candidates(self, there: Mapping[str, Any]) -> list[str]:
        found = sorted((each for each in there if each.endswith(self._names)), key=lambda name: (len(name), name))
        if len(found) > MAX_CANDIDATES:
            self._warn(
                f"{len(found)} topics have names that end with {' or '.join(self._names)}: only the {MAX_CANDIDATES} "
                "shortest names are looked at for mirrors"
            )
        return found[:MAX_CANDIDATES]

    def _described(self, admin: AdminClient, names: list[str]) -> Iterator[tuple[str, str | None]]:
        asked = [ConfigResource(ResourceType.TOPIC, each) for each in names]
        for resource, future in admin.describe_configs(asked, request_timeout=_TIMEOUT_S).items():
            try:
                source = future.result(_TIMEOUT_S + _GRACE_S).get(MIRROR_SOURCE)
            except KafkaException as failure:
                code = failure.args[0].code()
                if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    self._warn(
                        f"this user may not see whether {resource.name} is a mirror topic, so it is not read: allow "
                        "DESCRIBE_CONFIGS on it"
                    )
                elif code not in _GONE:
                    raise
            else:
                yield resource.name, None if source is None else source.value

    def _warn(self, sentence: str) -> None:
        if sentence not in self._warned and len(self._warned) < MAX_CANDIDATES:
            self._warned.add(sentence)
            log.warning("%s", sentence)


class MirrorWatch:
    """Looks for mirrors again and again, on a thread of its own, so that reading never waits for it."""

    def __init__(self, config: dict[str, Any], names: Sequence[str]) -> None:
        self._config = config
        self._every_s = LOOK_EVERY_S
        self._admin: AdminClient | None = None
        self._finder = MirrorFinder(self._use_admin, config["bootstrap.servers"], names)
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self.found: Mirrors = {}
        """As of the last look; another object if it differs from the one before."""

    def look(self) -> Mirrors:
        """Look now. Not after `start`."""
        found = self._finder.look()
        if found != self.found:
            self.found = found
        return self.found

    def start(self) -> Mirrors:
        """Look now, and then every few seconds until `close`. Raises what the first look raises."""
        found = self.look()
        self._thread = threading.Thread(target=self._run, name="headrace-mirrors", daemon=True)
        self._thread.start()
        return found

    def close(self) -> None:
        self._closing.set()
        if self._thread is not None:
            self._thread.join(_TIMEOUT_S + _GRACE_S)
        self._admin = None

    def _run(self) -> None:
        while not self._closing.wait(self._every_s):
            try:
                self.look()
            except ClientError as error:
                log.debug("the mirror topics are as they were at the last look: %s", error)

    def _use_admin(self) -> AdminClient:
        if self._admin is None:
            self._admin = create_client(AdminClient, self._config)
        # Callbacks, such as the one for a new token, are called by `poll` only.
        self._admin.poll(0)
        return self._admin
