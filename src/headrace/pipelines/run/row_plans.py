"""The parts of a plan that look at one row at a time, each as rows of its own to be tried. See `failing_rows.py`.

Looks into Spark's analysed plans, as `output_modes.py` does. What is not known to look at single rows is
taken to look at several.
"""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession

_STREAM = "DataSourceV2Relation"
"""What a topic is in a plan of a batch. Files and tables are other relations."""
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
    """A node of a plan, asked of the JVM once."""

    def __init__(self, node: Any) -> None:
        self.node = node
        self.kind = _kind(node)
        self.children: list[_Node] = [_Node(each) for each in _each(node.children())]
        self.has_stream: bool = self.kind == _STREAM or any(each.has_stream for each in self.children)

    def is_by_row(self, *, in_with: bool = False) -> bool:
        """Whether no two rows of a stream meet in here."""
        if self.kind == "CTERelationRef":
            return in_with
        if not self.has_stream:
            return True
        if self.kind == "Join":
            is_known = sum(each.has_stream for each in self.children) == 1
        elif self.kind == "MapInArrow":
            # Ours decodes Avro; that of a user may look at several rows.
            is_known = "_reason" in str(self.node.output())
        else:
            is_known = self.kind in _BY_ROW
        return is_known and all(each.is_by_row(in_with=in_with or self.kind == "WithCTE") for each in self.children)

    def largest(self) -> "Iterator[_Node]":
        """The largest parts that are by row, with an aggregation over them where there is one."""
        if not self.has_stream:
            return
        if self.is_by_row() or (self.kind == "Aggregate" and self.children[0].is_by_row()):
            yield self
            return
        for each in self.children:
            yield from each.largest()


def row_plans(spark: SparkSession, rows: DataFrame) -> list[DataFrame]:
    """The largest parts of the plan of `rows` in which rows do not meet."""
    found = _Node(rows._jdf.queryExecution().analyzed()).largest()
    return [_tried(spark, each) for each in found]


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _each(found: Any) -> list[Any]:
    return [found.apply(at) for at in range(found.size())]


def _tried(spark: SparkSession, part: _Node) -> DataFrame:
    """A part as rows; of an aggregation what goes into it: keys and arguments."""
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
    """What the aggregate functions in an expression are given. One with a FILTER is not given every row."""
    if _kind(expression) == "AggregateExpression":
        return [] if expression.filter().isDefined() else _each(expression.aggregateFunction().children())
    return [each for child in _each(expression.children()) for each in _arguments(child)]


def _frame(spark: SparkSession, node: Any) -> DataFrame:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, node), spark)
