"""A disk that fails at a step, and the values that a log has after it."""

from pathlib import Path

from headrace.testing.logs import LogBench


def fail_when(step: str, suffix: str, error: int):
    def hook(what: str, path: Path) -> None:
        if what == step and path.name.endswith(suffix):
            raise OSError(error, "played")

    return hook


def values(bench: LogBench) -> list[bytes | None]:
    return [record.value for record in bench.records()]
