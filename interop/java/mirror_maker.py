"""Kafka's MirrorMaker 2 as a process: the clusters that it knows, and what it copies between them."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from apache import Java

_OWN_TOPICS = ("checkpoints.topic", "heartbeats.topic", "offset-syncs.topic",
               "offset.storage", "status.storage", "config.storage")  # fmt: skip
_STOP_WITHIN_S = 60.0


class MirrorMaker:
    """Copies between clusters, by name and address, in the given directions. It looks for changes every second."""

    def __init__(
        self,
        java: Java,
        folder: Path,
        clusters: Mapping[str, str],
        flows: Mapping[tuple[str, str], Mapping[str, str]],
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`flows` are the settings of each direction, by the names of its source and its target."""
        rows = {
            "clusters": ",".join(clusters),
            **{f"{name}.bootstrap.servers": address for name, address in clusters.items()},
            "replication.factor": "1",
            **{f"{name}.replication.factor": "1" for name in _OWN_TOPICS},
            "refresh.topics.interval.seconds": "1",
            "refresh.groups.interval.seconds": "1",
            "sync.topic.configs.interval.seconds": "1",
            **(settings or {}),
        }
        for source in clusters:
            for target in clusters:
                if source != target:
                    flow = flows.get((source, target))
                    rows[f"{source}->{target}.enabled"] = "false" if flow is None else "true"
                    rows |= {f"{source}->{target}.{name}": value for name, value in (flow or {}).items()}
        file = folder / "mirror-maker.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in rows.items()))
        self._log = folder / "mirror-maker.log"
        self._command = java.command("org.apache.kafka.connect.mirror.MirrorMaker", str(file))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "MirrorMaker":
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(_STOP_WITHIN_S)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def last_output(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-20:])
