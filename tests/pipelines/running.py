"""What the tests of pipelines share: write a file, run it in the shared session until all is done, look at topics."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.client.message import Message
from headrace.pipelines.control.folder import StateFolder
from headrace.pipelines.dead_letters.replay import read_letters
from headrace.pipelines.spec.file import SpecFile
from headrace.wire import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.pipelines.control.progress import RunProgress

Write = Callable[..., int]


class Pipelines:
    """Runs pipelines in a folder of the test's own."""

    def __init__(self, spark: "SparkSession", folder: Path, cluster: Cluster) -> None:
        self._spark = spark
        self.folder = folder
        self._cluster = cluster

    def file(self, name: str, text: str) -> SpecFile:
        path = self.folder / f"{name}.toml"
        path.write_text(text)
        return SpecFile(path, {}, bootstrap=self._cluster.bootstrap)

    def state(self, name: str) -> StateFolder:
        return StateFolder.of(self.folder / "state", name)

    def run(self, name: str, text: str) -> "RunProgress":
        from headrace.pipelines.run.runner import Runner

        return Runner(self._spark, self.file(name, text), self.state(name), ends=True).run()

    def messages(self, topic: str) -> list[Message]:
        """Everything that is committed in a topic."""
        return list(read_letters(self._cluster, topic))

    def values(self, topic: str) -> list[Any]:
        """The values of a topic as JSON, sorted."""
        return sorted((json.loads(each.payload or b"null") for each in self.messages(topic)), key=json.dumps)


def as_json(**columns: object) -> bytes:
    return json.dumps(columns).encode()
