"""The graph of a pipeline in its reports."""

from pathlib import Path

from headrace.model.pipeline_report import MAX_NODES
from headrace.pipelines.report.graph import dead_letter_topics, graph_of, source_topics

from .specs import TEXT, revenue


def test_rows_go_from_sources_through_the_steps_that_name_them_to_sinks(tmp_path: Path) -> None:
    graph = graph_of(revenue(tmp_path))
    assert [(each.id, each.type) for each in graph.nodes] == [
        ("source:orders", "topic"),
        ("source:users", "table"),
        ("step:joined", "sql"),
        ("step:large", "sql"),
        ("sink:all", "topic"),
        ("sink:best", "table"),
        ("dead-letters:dead letters", "topic"),
    ]
    assert graph.edges == [
        ("source:orders", "step:joined"),
        ("source:users", "step:joined"),
        ("step:joined", "step:large"),
        ("step:joined", "sink:all"),
        ("step:large", "sink:best"),
        ("source:orders", "dead-letters:dead letters"),
    ]
    assert graph.nodes[2].detail.startswith("SELECT o.*, u.name FROM orders")


def test_topics_and_their_dead_letters(tmp_path: Path) -> None:
    assert source_topics(revenue(tmp_path)) == ["orders"]
    assert dead_letter_topics(revenue(tmp_path)) == ["orders.dlq"]
    skipping = revenue(tmp_path, TEXT + '\n[errors]\non_error = "skip"\n')
    assert dead_letter_topics(skipping) == []
    assert not any(each.kind == "dead-letters" for each in graph_of(skipping).nodes)


def test_without_steps_a_sink_reads_the_source(tmp_path: Path) -> None:
    spec = revenue(tmp_path, '[source]\ntopic = "a"\nformat = "raw"\n[sink]\ntopic = "b"\n')
    assert graph_of(spec).edges == [("source:source", "sink:sink")]


def test_a_graph_is_bounded(tmp_path: Path) -> None:
    steps = "".join(f'[[steps]]\nname = "s{at}"\nsql = "SELECT 1 AS a"\n' for at in range(MAX_NODES + 50))
    graph = graph_of(revenue(tmp_path, f'[source]\ntopic = "a"\nformat = "raw"\n{steps}[sink]\ntopic = "b"\n'))
    known = {each.id for each in graph.nodes}
    assert len(graph.nodes) == MAX_NODES
    assert all(known.issuperset(edge) for edge in graph.edges)
