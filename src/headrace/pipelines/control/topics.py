"""The topics of a pipeline: those it reads must exist, those it writes are created."""

import re

from headrace.pipelines.connection_options import ConnectionOptions, credentials_of
from headrace.pipelines.errors import NotReady
from headrace.pipelines.spec.model import Sink, Source, Spec
from headrace.wire import Cluster, Timeouts, WireError
from headrace.wire.cluster import BROKER_DEFAULT

_TIMEOUTS = Timeouts(patience_s=15.0)


def cluster_at(bootstrap: str, connection: ConnectionOptions = ()) -> Cluster:
    credentials = credentials_of(connection)
    return Cluster(bootstrap, client_id="headrace-pipeline", timeouts=_TIMEOUTS, credentials=credentials)


def cluster_of(spec: Spec, part: Source | Sink) -> Cluster:
    """The cluster that a source or sink of a pipeline uses."""
    return cluster_at(spec.bootstrap_of(part), spec.connection)


def matching(source: Source, topics: list[str]) -> list[str]:
    """The given topics that a source reads."""
    if source.pattern is not None:
        return [topic for topic in topics if re.fullmatch(source.pattern, topic)]
    return [topic for topic in source.all_topics if topic in topics]


def prepare_topics(spec: Spec) -> None:
    """Check that the topics to read exist, and create those to write; `NotReady` if one is missing."""
    for name, source in spec.streams.items():
        try:
            with cluster_of(spec, source) as cluster:
                _prepare_source(cluster, spec, name, source)
        except WireError as error:
            raise NotReady(str(error)) from error
    for sink in spec.sinks.values():
        if sink.topic is not None:
            try:
                with cluster_of(spec, sink) as cluster:
                    if sink.topic not in cluster.metadata([sink.topic]):
                        cluster.create_topic(sink.topic, partitions=sink.partitions or BROKER_DEFAULT)
            except WireError as error:
                raise NotReady(str(error)) from error


def _prepare_source(cluster: Cluster, spec: Spec, name: str, source: Source) -> None:
    known = cluster.metadata(None if source.pattern is not None else source.all_topics)
    for topic in source.all_topics:
        if topic not in known:
            raise NotReady(
                f"there is no topic {topic} at {cluster.bootstrap}: `headrace topic create {topic}` makes it, "
                f"or change [{name if name == 'source' else f'sources.{name}'}] in {spec.file}"
            )
    if spec.errors.on_error != "dead-letter" or not source.can_be_bad:
        return
    for topic in matching(source, [*known]):
        make_topic(cluster, spec.errors.dead_letter_topic(topic), like=topic)


def make_topic(cluster: Cluster, name: str, *, like: str) -> None:
    """Create a topic with as many partitions as another one, unless it exists."""
    found = cluster.metadata([name, like])
    if name not in found:
        cluster.create_topic(name, partitions=len(found[like].partitions))
