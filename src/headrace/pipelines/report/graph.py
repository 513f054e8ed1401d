"""The graph of a pipeline: sources, steps and sinks, and which rows go where. Pure."""

import re
from collections.abc import Iterator

from headrace.model.pipeline_report import MAX_EDGES, MAX_NODES, MAX_TOPICS, GraphNode, PipelineGraph
from headrace.pipelines.spec.model import Sink, Source, Spec, Step

_DETAIL_CHARS = 200


def graph_of(spec: Spec) -> PipelineGraph:
    """The graph of a spec; a step reads the views that its SQL names, or else the view before it."""
    nodes = [_source(name, each) for name, each in spec.sources.items()]
    nodes += [_step(each) for each in spec.steps]
    nodes += [_sink(name, each) for name, each in spec.sinks.items()]
    edges = [*_step_edges(spec), *_sink_edges(spec)]
    if topics := dead_letter_topics(spec):
        nodes.append(_node("dead-letters", "dead letters", "topic", ", ".join(topics)))
        edges += [
            (_id("source", name), _id("dead-letters", "dead letters"))
            for name, each in spec.streams.items()
            if each.can_be_bad
        ]
    known = {each.id for each in nodes[:MAX_NODES]}
    return PipelineGraph(nodes[:MAX_NODES], [each for each in edges if known.issuperset(each)][:MAX_EDGES])


def source_topics(spec: Spec) -> list[str]:
    """The topics that a pipeline reads and names; a pattern names none."""
    found = (topic for each in spec.streams.values() for topic in each.all_topics)
    return [*dict.fromkeys(found)][:MAX_TOPICS]


def dead_letter_topics(spec: Spec) -> list[str]:
    """The dead-letter topics of the topics that a pipeline names."""
    if spec.errors.on_error != "dead-letter":
        return []
    if spec.errors.topic is not None:
        return [spec.errors.topic]
    return [spec.errors.dead_letter_topic(topic) for topic in source_topics(spec)]


def _source(name: str, source: Source) -> GraphNode:
    if source.is_stream:
        return _node("source", name, "topic", source.pattern or ", ".join(source.all_topics))
    return _node("source", name, "table", source.table or source.path or "")


def _step(step: Step) -> GraphNode:
    if step.python is not None:
        return _node("step", step.name, "python", step.python)
    return _node("step", step.name, "sql", " ".join((step.sql or "").split()))


def _sink(name: str, sink: Sink) -> GraphNode:
    where = sink.topic or sink.table or sink.path or ""
    return _node("sink", name, sink.kind, where)


def _node(kind: str, name: str, type_: str, detail: str) -> GraphNode:
    shown = detail if len(detail) <= _DETAIL_CHARS else detail[: _DETAIL_CHARS - 1] + "…"
    return GraphNode(id=_id(kind, name), kind=kind, name=name, type=type_, detail=shown)  # type: ignore[arg-type]


def _id(kind: str, name: str) -> str:
    return f"{kind}:{name}"


def _step_edges(spec: Spec) -> Iterator[tuple[str, str]]:
    views = {name: _id("source", name) for name in spec.sources}
    for step in spec.steps:
        own = _id("step", step.name)
        words = set(re.findall(r"\w+", step.sql or ""))
        # What a Python function reads is known only when it is imported: its parameters name it.
        named = [] if step.python is not None else [each for name, each in views.items() if name in words]
        for each in named or [[*views.values()][-1]]:
            yield each, own
        views[step.name] = own


def _sink_edges(spec: Spec) -> Iterator[tuple[str, str]]:
    views = {name: _id("source", name) for name in spec.sources}
    views |= {step.name: _id("step", step.name) for step in spec.steps}
    for name, sink in spec.sinks.items():
        yield views.get(sink.from_ or "", [*views.values()][-1]), _id("sink", name)
