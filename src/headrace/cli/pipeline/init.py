"""The work of `headrace pipeline init`: a file to start from, with the schema of the messages that are there."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

from headrace.cli.errors import BadArgument
from headrace.cli.options import DEFAULT_BOOTSTRAP
from headrace.cli.output import count, say
from headrace.client.message import Message
from headrace.pipelines.control.reachability import check_reached
from headrace.pipelines.control.samples import newest_messages
from headrace.pipelines.control.topics import cluster_at
from headrace.pipelines.errors import NotReady
from headrace.pipelines.spec.schema_inference import InferredSchema, infer, quoted
from headrace.wire import WireError

_FILE = """\
# A pipeline: records of a topic flow through SQL into another topic.
#   headrace pipeline preview {file}     shows what it makes of a few messages
#   headrace pipeline validate {file}    finds mistakes before anything runs
#   headrace pipeline run {file}         runs it until Ctrl-C; --once: until all that is there is done
#   headrace pipeline start {file}       runs it in the background
{bootstrap}
[source]
topic = {topic}
{source}
starting = "earliest"            # where the first run begins: earliest, latest or a time

{steps}
[errors]
on_error = "dead-letter"         # a record that does not fit goes to {name}.dlq; or skip, or fail

[trigger]
every = "5 seconds"              # or: available-now = true

[spark]
master = "local[*]"              # or spark://host:7077, yarn, k8s://…
"""
_EXAMPLE_SOURCE = '''\
format = "json"                  # or csv, avro, text, raw
schema = "order_id STRING, user STRING, amount DOUBLE, at TIMESTAMP"'''
_EXAMPLE_STEPS = '''\
[transform]
watermark = "at 10 minutes"      # how late a row may come
sql = """
SELECT window.start AS minute, user, sum(amount) AS revenue
FROM source
GROUP BY window(at, '1 minute'), user
"""

[sink]
topic = "{topic}-revenue"
key = "user"
delivery = "exactly-once"        # or at-least-once
'''
_STEPS = """\
[transform]{watermark}
sql = {sql}

[sink]
topic = {out}{key}
delivery = "exactly-once"        # or at-least-once
"""
_NOTES_MAX = 20


def init_file(file: Path, topic: str, bootstrap: str | None, sample: int, *, force: bool) -> None:
    """Write the file. Without a broker, or without messages, its schema is an example, and that is said."""
    _check_free(file, force=force)
    where = bootstrap or os.environ.get("HEADRACE_BOOTSTRAP") or DEFAULT_BOOTSTRAP
    inferred = None
    notes: list[str] = []
    try:
        check_reached([where])
        with cluster_at(where) as cluster:
            found = newest_messages(cluster, topic, sample)
    except (NotReady, WireError) as error:
        say(f"The schema is an example: {error}")
    else:
        inferred = infer(each.payload for each in found or ())
        notes = _notes(inferred, found or [])
        _tell(inferred, topic, where, exists=found is not None)
    write_example(file, topic, force=force, inferred=inferred, bootstrap=bootstrap, notes=notes)


def _check_free(file: Path, *, force: bool) -> None:
    if file.exists() and not force:
        raise BadArgument(f"{file} is there already: choose another name, or add --force to replace it")


def _tell(inferred: InferredSchema, topic: str, where: str, *, exists: bool) -> None:
    if not inferred.looked_at:
        what = "has no messages yet" if exists else f"is not there at {where}"
        say(f"The schema is an example: the topic {topic} {what}")
        return
    looked = f"Looked at the newest {count(inferred.looked_at, 'message')} of {topic}"
    if inferred.format != "json":
        say(f"{looked}: none is a JSON object, so they are read as {inferred.format}")
        return
    odd = f"; {count(inferred.misfits, 'message')} of them would not fit" if inferred.misfits else ""
    say(f"{looked}: {count(len(inferred.columns), 'column')}{odd}. Check the types: other messages may have others")


def _notes(inferred: InferredSchema, messages: Sequence[Message]) -> list[str]:
    """A comment for each column whose type some of the messages do not have."""
    notes = []
    for each in inferred.exceptions[:_NOTES_MAX]:
        example = messages[each.example]
        place = f"{example.topic}/{example.partition}/{example.offset}"
        notes.append(
            f"# {_text(each.column)[1:-1]}: {each.kind} in all but {each.count:,} of {each.total:,} values "
            f"({each.other_kind} at {place}); messages with others do not fit, see on_error"
        )
    if len(inferred.exceptions) > _NOTES_MAX:
        notes.append(f"# … and {count(len(inferred.exceptions) - _NOTES_MAX, 'more column')} like that")
    return notes


def write_example(
    file: Path,
    topic: str,
    *,
    force: bool,
    inferred: InferredSchema | None = None,
    bootstrap: str | None = None,
    notes: Sequence[str] = (),
) -> None:
    _check_free(file, force=force)
    if inferred is None or not inferred.looked_at:
        source, steps = _EXAMPLE_SOURCE, _EXAMPLE_STEPS.format(topic=topic)
    else:
        source, steps = "\n".join([*notes, _source(inferred)]), _steps(inferred, topic)
    named = "" if bootstrap is None else f"bootstrap = {_text(bootstrap)}\n"
    text = _FILE.format(
        file=file, topic=_text(topic), name=topic, source=source, steps=steps, bootstrap=f"\n{named}" if named else ""
    )
    file.write_text(text, encoding="utf-8")
    print(f"Wrote {file}: change it to your needs, then `headrace pipeline preview {file}`")


def _source(inferred: InferredSchema) -> str:
    if inferred.format != "json":
        return f"format = {_text(inferred.format)}                  # or json, csv, avro"
    return f'format = "json"                  # or csv, avro, text, raw\nschema = {_block(inferred.schema)}'


def _steps(inferred: InferredSchema, topic: str) -> str:
    times = [name for name, kind in inferred.columns.items() if kind == "TIMESTAMP" and "." not in name]
    mark = (
        f"\n# watermark = {_text(f'{times[0]} 10 minutes')}    # how late a row may come, if it is for windows"
        if times
        else ""
    )
    if inferred.format == "json":
        columns = ",\n".join(f"    {quoted(name)}" for name in inferred.columns)
        sql = f"SELECT\n{columns}\nFROM source"
    else:
        sql = "SELECT value FROM source"
    key = '\n# key = "…"                      # a column; without it the key that a record came with'
    return _STEPS.format(watermark=mark, sql=_block(f"\n{sql}\n"), out=_text(f"{topic}-out"), key=key)


def _text(text: str) -> str:
    """A TOML string, which is escaped as in JSON. `${` is escaped too: it would begin a variable."""
    return json.dumps(text.replace("${", "$${"), ensure_ascii=False)


def _block(text: str) -> str:
    """On several lines where it has some."""
    escaped = _text(text)[1:-1]
    return f'"""{escaped.replace(chr(92) + "n", chr(10))}"""' if "\n" in text else f'"{escaped}"'
