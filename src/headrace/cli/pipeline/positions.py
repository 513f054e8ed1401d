"""The work of `headrace pipeline lag` and `reset`. Needs no Spark."""

import re
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

from headrace.cli.errors import BadArgument, CommandFailed
from headrace.cli.output import print_json, table
from headrace.cli.pipeline.run import failing, load
from headrace.cli.times import parse_time
from headrace.pipelines.control.folder import StateFolder
from headrace.pipelines.control.lag import PipelineReset, mirror_to, positions, targets
from headrace.pipelines.control.reachability import check_brokers
from headrace.pipelines.control.topic_sinks import clean_up_all, topic_sinks
from headrace.wire import Partition

_OFFSET = re.compile(r"([a-zA-Z0-9._-]+):(\d+)=(\d+)")


def show_lag(file: Path, bootstrap: str | None, *, as_json: bool) -> None:
    spec = load(file, bootstrap).spec
    with failing():
        check_brokers(spec)
        found = positions(spec)
    lag = sum(each.lag for each in found)
    if as_json:
        rows = [{**asdict(each), "lag": each.lag} for each in found]
        print_json({"pipeline": spec.name, "group": spec.group, "lag": lag, "partitions": rows})
        return
    print(f"{spec.name}: {lag:,} records to read\n")
    heads = [("TOPIC", "left"), ("PARTITION", "right"), ("DONE", "right"), ("END", "right"), ("LAG", "right")]
    table(
        None,
        heads,
        [
            (each.topic, each.partition, "-" if each.committed is None else each.committed, each.end, each.lag)
            for each in found
        ],
    )


def parse_target(text: str) -> PipelineReset:
    """`earliest`, `latest`, a time, or `TOPIC:PARTITION=OFFSET,…`."""
    if text in ("earliest", "latest"):
        return PipelineReset(to_earliest=text == "earliest", to_latest=text == "latest")
    if "=" in text:
        offsets: dict[Partition, int] = {}
        for part in text.split(","):
            found = _OFFSET.fullmatch(part.strip())
            if found is None:
                raise BadArgument(f"--to {part.strip()} is not TOPIC:PARTITION=OFFSET")
            offsets[found[1], int(found[2])] = int(found[3])
        return PipelineReset(to_offsets=offsets)
    try:
        return PipelineReset(to_time_ms=parse_time(text))
    except BadArgument:
        raise BadArgument(
            f"--to {text} is neither earliest, latest, a time (2026-01-31T12:00, '2h ago') nor TOPIC:PARTITION=OFFSET"
        ) from None


def reset_file(file: Path, bootstrap: str | None, to: str, state_dir: Path, *, execute: bool, as_json: bool) -> None:
    target = parse_target(to)
    spec = load(file, bootstrap).spec
    folder = StateFolder.of(state_dir, spec.name)
    with failing():
        folder.check_version()
    if (pid := folder.supervisor_lock.holder() or folder.run_lock.holder()) is not None:
        raise CommandFailed(f"{spec.name} is running (process {pid}): stop it first")
    with failing():
        check_brokers(spec)
        # Report what is impossible before a folder is created.
        targets(spec, target)
    backup = None
    # The lock keeps the pipeline from starting between the question and the change.
    with failing(), folder.run_lock.take(f"the pipeline {spec.name}") if execute else nullcontext():
        known = {(each.topic, each.partition): each for each in positions(spec)}
        wanted = targets(spec, target)
        if execute:
            clean_up_all({**folder.read_sinks(), **topic_sinks(spec)}.values())
            start = {name: _nested(offsets) for name, offsets in wanted.items()}
            backup = folder.reset_checkpoint(start)
            mirror_to(spec, wanted)
    moves = [
        {"topic": where[0], "partition": where[1], "before": known[where].committed, "after": offset}
        for offsets in wanted.values()
        for where, offset in offsets.items()
    ]
    if as_json:
        print_json({"pipeline": spec.name, "executed": execute, "backup": backup and str(backup), "moves": moves})
        return
    heads = [("TOPIC", "left"), ("PARTITION", "right"), ("FROM", "right"), ("TO", "right")]
    rows = [
        (each["topic"], each["partition"], "-" if each["before"] is None else each["before"], each["after"])
        for each in moves
    ]
    table(None, heads, rows)
    if not execute:
        print("\nNothing was changed: add --execute to do it")
    else:
        print(f"\n{spec.name} begins there when it runs next" + (f"; its old checkpoint is {backup}" if backup else ""))


def _nested(offsets: dict[Partition, int]) -> dict[str, dict[str, int]]:
    nested: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in offsets.items():
        nested.setdefault(topic, {})[str(partition)] = offset
    return nested
