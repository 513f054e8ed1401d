import pytest

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException

from headrace.pipelines.spark_errors import explain_error


class Failure(PySparkException):
    def __init__(self, text: str, condition: str | None = None, **parameters: str) -> None:
        super().__init__("", errorClass=None, messageParameters=None)
        self._text, self._condition, self._parameters = text, condition, parameters

    def getCondition(self):
        return self._condition

    def getMessageParameters(self):
        return self._parameters

    def getMessage(self):
        return self._text

    def __str__(self):
        return self._text


WORKER = """\
[STREAM_FAILED] Query [id = 5e4c, runId = 9244] terminated with exception: Job aborted due to stage failure: Task 0 in \
stage 4.0 failed 1 times, most recent failure: Lost task 0.0: org.apache.spark.api.python.PythonException: Traceback \
(most recent call last):
  File "/somewhere/pyspark/worker.py", line 12, in main
    process()
  File "/somewhere/headrace/wire/router.py", line 3, in ask
    raise Unreachable(text)
headrace.wire.errors.Unreachable: no broker answers at localhost:9092

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1)
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            Failure("", "UNRESOLVED_COLUMN.WITH_SUGGESTION", objectName="`amuont`", proposal="`amount`, `at`"),
            "there is no column amuont; the columns are amount, at",
        ),
        (Failure("[PARSE_SYNTAX_ERROR] Syntax error at or near 'BY'. SQLSTATE: 42601"), "Syntax error at or near 'BY'"),
        (
            Failure(
                "[USER_RAISED_EXCEPTION] the record at a/0/1 does not fit SQLSTATE: P0001\n=== Streaming Query ===\nId",
                "STREAM_FAILED",
            ),
            "the record at a/0/1 does not fit",
        ),
        (
            Failure("", "STREAM_FAILED", message="[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012"),
            "Division by zero",
        ),
        (Failure(WORKER), "no broker answers at localhost:9092"),
        (
            Failure(WORKER.replace("headrace.wire.errors.Unreachable: no broker answers", "ValueError: too odd")),
            "ValueError: too odd at localhost:9092",
        ),
        (
            Failure("Sorting is not supported on streaming DataFrames;\n~Sort [id#0 ASC], true\n+- StreamingRelation"),
            "Sorting is not supported on streaming DataFrames",
        ),
        (ZeroDivisionError("division by zero"), "division by zero"),
        (Failure(""), "Failure"),
    ],
)
def test_one_sentence_is_left_of_what_spark_says(error, words):
    assert explain_error(error) == words


def test_an_error_in_a_function_for_batches_is_told_without_the_query_that_follows_it():
    text = (
        "An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):\n"
        '  File "/somewhere/headrace/pipelines/run/start.py", line 55, in write\n'
        "    write_batch(batch)\n"
        "pyspark.errors.exceptions.captured.NumberFormatException: [CAST_INVALID_INPUT] The value 'x' cannot be cast "
        'to "INT". SQLSTATE: 22018\n'
        "== SQL (line 1, position 19) ==\n"
        "SELECT CAST(a AS INT)\n"
        "=== Streaming Query ===\n"
        "Identifier: p.sink [id = 5e4c, runId = 9244]\n"
    )
    assert explain_error(Failure(text)) == "The value 'x' cannot be cast to \"INT\""
