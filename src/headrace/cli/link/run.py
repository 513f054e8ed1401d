"""The work of `headrace link`, by the HTTP API."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import typer

from headrace.cli.errors import BadArgument, CommandFailed
from headrace.cli.http_api import HttpApi
from headrace.cli.output import count, human_bytes, human_duration, print_json, say, table

_LEFT, _RIGHT = "left", "right"
_ANSWER_S = 30.0
"""What a request may take longer than the wait that it asks for."""
_MOMENT_S = 1.0
"""A source that is asked twice a second was heard less than this ago."""


def create_link(bootstrap: str, http: str, wanted: Mapping[str, Any]) -> None:
    if not wanted["bootstrap"]:
        raise BadArgument("--bootstrap needs addresses of the source cluster: host:port,host:port")
    made = HttpApi(bootstrap, http).post("/links", wanted)
    print(f"Created the link {made['name']} from {', '.join(made['bootstrap'])}")
    say(f"How far its topics are: headrace link describe {made['name']}")


def alter_link(bootstrap: str, http: str, name: str, changes: Mapping[str, Any]) -> None:
    if not changes:
        raise BadArgument("say what to change: headrace link alter --help lists the options")
    link = HttpApi(bootstrap, http).patch(f"/links/{_path(name)}", changes)
    print(f"Changed the link {link['name']}")
    _print_link(link)


def show_links(bootstrap: str, http: str, *, as_json: bool) -> None:
    found = HttpApi(bootstrap, http).get("/links")
    if as_json:
        print_json(found)
    elif not found:
        say("There are no links; make one: headrace link create eu --bootstrap eu-1:9092 --topics 'orders.*'")
    else:
        columns = [("LINK", _LEFT), ("SOURCE", _LEFT), ("STATE", _LEFT), ("TOPICS", _RIGHT), ("FAULTED", _RIGHT),
                   ("PROMOTED", _RIGHT)]  # fmt: skip
        table(None, columns, [_link_row(each) for each in found])


def show_link(bootstrap: str, http: str, name: str, *, partitions: bool, as_json: bool) -> None:
    found = HttpApi(bootstrap, http).get(f"/links/{_path(name)}")
    if as_json:
        print_json(found)
        return
    _print_link(found["link"])
    _print_takeover(found)
    if found["problem"]:
        say(f"The source was not reached: {found['problem']}")
    for topic, problem in found["problems"].items():
        say(f"{topic} at the source: {problem}")
    for kind, problem in found["sync_problems"].items():
        say(f"{kind}: {problem}")
    if not found["topics"]:
        if not found["problems"]:
            say("No topic is mirrored yet: none of the source matches, or the first look has not ended")
        return
    rows = [row for topic in found["topics"] for row in _topic_rows(topic, partitions=partitions)]
    columns = [("TOPIC", _LEFT), ("SOURCE TOPIC", _LEFT), ("STATE", _LEFT), ("MESSAGES BEHIND", _RIGHT),
               ("TIME BEHIND", _RIGHT), ("COPIED", _RIGHT), ("NOTE", _LEFT)]  # fmt: skip
    table(None, columns, rows)


def _print_link(link: Mapping[str, Any]) -> None:
    limit = link["max_bytes_per_second"]
    print(f"{link['name']}: {link['state']}, from {', '.join(link['bootstrap'])}{_user(link)}")
    print(f"Topics: {' '.join(link['topics'])}{_but(link['exclude'])}{_prefix(link['prefix'])}")
    print(f"At most: {'no limit' if limit is None else f'{human_bytes(limit)}/s on each broker'}")
    print(f"Copied besides records: {', '.join(_synced(link)) or 'nothing'}")


def _print_takeover(found: Mapping[str, Any]) -> None:
    if found["last_takeover_topic"] is not None:
        ago = human_duration(max(0.0, time.time() - found["last_takeover_ms"] / 1000))
        took_ms = found["last_takeover_took_ms"]
        took = "" if took_ms is None else f", in {human_duration(took_ms / 1000)}"
        print(f"Last takeover: {found['last_takeover_topic']}, {ago} ago{took}")


def _synced(link: Mapping[str, Any]) -> list[str]:
    return [kind for kind in ("groups", "settings") if link[kind]] + list(link["sync"])


def pause_link(bootstrap: str, http: str, name: str, topics: Sequence[str], *, is_paused: bool) -> None:
    HttpApi(bootstrap, http).put(f"/links/{_path(name)}/paused", {"is_paused": is_paused, "topics": list(topics)})
    what = f"{', '.join(topics)} of the link {name}" if topics else f"The link {name}"
    print(f"{what}: {'paused' if is_paused else 'copied again'}")


def delete_link(bootstrap: str, http: str, name: str) -> None:
    HttpApi(bootstrap, http).delete(f"/links/{_path(name)}")
    print(f"Deleted the link {name}")


def take_over(
    bootstrap: str, http: str, topics: Sequence[str], *, how: str, dry_run: bool, timeout_s: float, as_json: bool
) -> None:
    """Promote mirror topics or fail them over."""
    api = HttpApi(bootstrap, http, timeout_s=timeout_s + _ANSWER_S)

    def ask(topic: str) -> Any:
        return api.post(f"/mirrors/{_path(topic)}/{how}", {"dry_run": dry_run, "timeout_s": timeout_s})

    def text(topic: str, answer: Mapping[str, Any]) -> str:
        return _taken(topic, answer, how=how, dry_run=dry_run)

    _each_topic(topics, ask, None if as_json else text, "taken over")


def reverse_topics(
    bootstrap: str,
    http: str,
    name: str,
    topics: Sequence[str],
    *,
    dry_run: bool,
    yes: bool,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Make former sources mirrors."""
    if not dry_run and not yes:
        if not sys.stdin.isatty():
            raise BadArgument("topics become read-only and there is no terminal to confirm on: add --yes, or --dry-run")
        typer.confirm(f"Make {', '.join(topics)} read-only here, and copy from the cluster of {name}?", abort=True)
    api = HttpApi(bootstrap, http, timeout_s=timeout_s + _ANSWER_S)

    def ask(topic: str) -> Any:
        wanted = {"topic": topic, "dry_run": dry_run, "timeout_s": timeout_s}
        return api.post(f"/links/{_path(name)}/reverse", wanted)

    def text(topic: str, answer: Mapping[str, Any]) -> str:
        return _reversed(topic, name, answer, dry_run=dry_run)

    _each_topic(topics, ask, None if as_json else text, "reversed")


def _each_topic(
    topics: Sequence[str],
    ask: Callable[[str], Any],
    text: Callable[[str, Mapping[str, Any]], str] | None,
    what: str,
) -> None:
    """Ask for one topic after the other and print the answers, as JSON without a `text`.

    Topics that fail do not keep the others; their errors are printed, too.
    """
    answers: list[dict[str, Any]] = []
    failed = 0
    for topic in topics:
        try:
            answer = ask(topic)
        except CommandFailed as error:
            failed += 1
            answers.append({"topic": topic, "error": str(error)})
            if text is not None:
                say(f"{topic}: {error}")
        else:
            answers.append({"topic": topic, **answer})
            if text is not None:
                print(text(topic, answer))
    if text is None:
        print_json(answers)
    if failed:
        raise CommandFailed(f"{failed} of {count(len(topics), 'topic')} could not be {what}")


def _reversed(topic: str, link: str, answer: Mapping[str, Any], *, dry_run: bool) -> str:
    aside = f"{count(answer['set_aside'], 'message')} that the other cluster never had"
    if dry_run:
        text = f"{topic} would become a mirror; {aside} would be set aside in {answer['divergent_topic']}"
    elif answer["is_complete"]:
        text = f"{topic} is a mirror of {answer['source_topic']} now; {aside}: set aside in {answer['divergent_topic']}"
    else:
        why = f" ({answer['note']})" if answer["note"] else ""
        text = f"{topic} is read-only, and still sets messages aside{why}; how far it is: headrace link describe {link}"
    left = [
        f"{count(answer[each], 'message')} of {what}"
        for each, what in (("aborted", "aborted transactions"), ("undecided", "transactions without an end"))
        if answer[each]
    ]
    return f"{text}; not among them: {', '.join(left)}" if left else text


def _taken(topic: str, answer: Mapping[str, Any], *, how: str, dry_run: bool) -> str:
    head = f"{topic} would be writable here" if dry_run else f"{topic} is writable here"
    if dry_run and how == "promote":
        head += " once it has everything of the source"
    messages, seconds = answer["missing_messages"], answer["missing_seconds"]
    if messages is None or seconds is None:
        return f"{head}; what is missing is not known, since the source was never heard about all of its partitions"
    if not messages and seconds < _MOMENT_S:
        return f"{head}; nothing that the source had a moment ago is missing"
    known = f"{count(messages, 'message')} that the source had, and " if messages else ""
    return f"{head}; missing: {known}what it got in the last {human_duration(seconds)}"


def _link_row(link: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        link["name"],
        ",".join(link["bootstrap"]),
        link["state"],
        *(f"{link[count]:,}" for count in ("topic_count", "faulted_count", "promoted_count")),
    )


def _topic_rows(topic: Mapping[str, Any], *, partitions: bool) -> list[tuple[str, ...]]:
    rows = [_figures(topic["topic"], topic["source_topic"], topic["state"], topic)]
    if partitions:
        rows += [_figures(f"  {part['partition']}", "", part["state"], part) for part in topic["partitions"]]
    return rows


def _figures(name: str, source: str, state: str, row: Mapping[str, Any]) -> tuple[str, ...]:
    lag = (_number(row["lag_messages"]), _seconds(row["lag_seconds"]))
    return (name, source, state, *lag, human_bytes(row["copied_bytes"]), row["note"])


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else human_duration(value)


def _user(link: Mapping[str, Any]) -> str:
    how = " over TLS" if link["tls"] else ""
    return f"{how} as {link['user']}" if link["user"] else how


def _but(excluded: Sequence[str]) -> str:
    return f", but not {' '.join(excluded)}" if excluded else ""


def _prefix(prefix: str) -> str:
    return f", here with {prefix} before their names" if prefix else ""


def _path(name: str) -> str:
    return quote(name, safe="")
