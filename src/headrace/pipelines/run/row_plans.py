"""Extracts the row-wise parts of a plan, each as a DataFrame. See `failing_rows.py`.

Inspects Spark's analysed plans, as `output_modes.py` does. An operator that is not known to be row-wise is treated as
one that combines rows.
"""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession

_STREAM = "DataSourceV2Relation"
"""The relation of a topic in a batch plan. Files and tables are other relations."""
_BY_ROW = frozenset(
    {
        "Project",
        "Filter",
        "Generate",
        "Expand",
        "Union",
        "SubqueryAlias",
        "View",
        "CollectMetrics",
        "EventTimeWatermark",
        "Repartition",
        "RepartitionByExpression",
        "ResolvedHint",
        "WithCTE",
        "CTERelationDef",
        _STREAM,
    }
)


class _Node:
    """A node of a plan, copied from the JVM."""

    def __init__(self, node: Any) -> None:
        self.node = node
        self.kind = _kind(node)
        self.children: list[_Node] = [_Node(each) for each in _each(node.children())]
        self.has_stream: bool = self.kind == _STREAM or any(each.has_stream for each in self.children)

    def is_by_row(self, *, in_with: bool = False) -> bool:
        """Whether this part of the plan combines no rows of a stream."""
        if self.kind == "CTERelationRef":
            return in_with
        if not self.has_stream:
            return True
        if self.kind == "Join":
            is_known = sum(each.has_stream for each in self.children) == 1
        elif self.kind == "MapInArrow":
            # Ours decodes values row by row; a user's may combine rows.
            is_known = "_reason" in str(self.node.output())
        else:
            is_known = self.kind in _BY_ROW
        return is_known and all(each.is_by_row(in_with=in_with or self.kind == "WithCTE") for each in self.children)

    def largest(self) -> "Iterator[_Node]":
        """The largest row-wise parts, each including an aggregation directly above it."""
        if not self.has_stream:
            return
        if self.is_by_row() or (self.kind == "Aggregate" and self.children[0].is_by_row()):
            yield self
            return
        for each in self.children:
            yield from each.largest()


def row_plans(spark: SparkSession, rows: DataFrame) -> list[DataFrame]:
    """The largest row-wise parts of the plan of `rows`."""
    found = _Node(rows._jdf.queryExecution().analyzed()).largest()
    return [_tried(spark, each) for each in found]


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _each(found: Any) -> list[Any]:
    return [found.apply(at) for at in range(found.size())]


def _tried(spark: SparkSession, part: _Node) -> DataFrame:
    """A part as a DataFrame; for an aggregation, its keys and arguments."""
    if part.kind != "Aggregate":
        return _frame(spark, part.node)
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    inputs = _each(part.node.groupingExpressions())
    for expression in _each(part.node.aggregateExpressions()):
        inputs += _arguments(expression)
    rows = _frame(spark, part.children[0].node)
    column = jvm.org.apache.spark.sql.classic.ExpressionUtils.column
    return rows.select([Column(column(each)).alias(f"c{at}") for at, each in enumerate(inputs)]) if inputs else rows


def _arguments(expression: Any) -> list[Any]:
    """The arguments of the aggregate functions in an expression, except those with a FILTER."""
    if _kind(expression) == "AggregateExpression":
        return [] if expression.filter().isDefined() else _each(expression.aggregateFunction().children())
    return [each for child in _each(expression.children()) for each in _arguments(child)]


def _frame(spark: SparkSession, node: Any) -> DataFrame:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, node), spark)
