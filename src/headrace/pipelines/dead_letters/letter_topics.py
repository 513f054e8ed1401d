"""The dead-letter topics of a pipeline, on the clusters of its sources."""

from headrace.pipelines.connection_options import ConnectionOptions
from headrace.pipelines.control.topics import cluster_of, matching
from headrace.pipelines.spec.model import Spec

LetterTopic = tuple[str, ConnectionOptions, str]
"""Bootstrap servers, connection and dead-letter topic."""


def letter_topics(spec: Spec) -> list[LetterTopic]:
    """Those of every topic that the pipeline reads now, without duplicates. Raises `WireError`."""
    found: list[LetterTopic] = []
    for source in spec.streams.values():
        topics = source.all_topics
        if source.pattern is not None:
            with cluster_of(spec, source) as cluster:
                topics = matching(source, [*cluster.metadata()])
        where = spec.bootstrap_of(source)
        found += [(where, spec.connection, spec.errors.dead_letter_topic(topic)) for topic in topics]
    return [*dict.fromkeys(found)]
