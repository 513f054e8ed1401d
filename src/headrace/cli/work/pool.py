"""The pool of `headrace work`: starts, stops, restarts and replaces processes that run the client of an application.

Every second one of the processes asks the brokers for the backlog, all report what they have handled, and
`model/scale.py` decides how many are to run. A process that ends by itself is replaced, after a wait that doubles while
processes end soon after their start.
"""

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headrace.cli.children import how_it_ended
from headrace.cli.errors import BadArgument
from headrace.cli.work.load import PoolLoad
from headrace.cli.work.process import PoolProcess, ProcessLimits
from headrace.cli.work.source_files import SourceFiles
from headrace.cli.work.status import PoolOutput, PoolView, processes_text
from headrace.client.work.messages import ApplicationLoaded, Backlog, LoadFailed, Message, Report
from headrace.model.backoff import ExponentialDelay, RetryDelays
from headrace.model.scale import PoolScaler, ScaleRules, SourceLoad

_TICK_S = 1.0
_WATCH_EVERY_S = 0.3
_RESTART_DELAY_S = ExponentialDelay(0.5, 30.0)
_STEADY_S = 10.0
"""A process that ran for so long was no part of a crash loop."""
_CRASH_LOOP = 3
"""So many ends in a row are one."""


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """What `headrace work` was asked for."""

    target: str
    rules: ScaleRules
    limits: ProcessLimits
    is_reloaded: bool = False


class WorkPool:
    """The processes of one application. `work` runs until it is cancelled; then `shut_down` ends them."""

    def __init__(self, options: PoolOptions, output: PoolOutput) -> None:
        self._options = options
        self._rules = options.rules
        self._output = output
        self._load = PoolLoad()
        self._scaler = PoolScaler(options.rules, time.monotonic())
        self._files = SourceFiles()
        self._size = 0
        self._reason = "starting"
        self._loads: list[SourceLoad] = []
        self._numbers = 0
        self._active: list[PoolProcess] = []
        """In the order of their start, without those that are stopping."""
        self._stopping: list[PoolProcess] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_rolling = False
        self._delays = RetryDelays(_RESTART_DELAY_S)
        self._start_after_s = 0.0
        self._restarts = 0

    async def work(self) -> None:
        """Run the pool. `BadArgument` if the application cannot be loaded at the start."""
        await self._start_first()
        if self._options.is_reloaded:
            self._begin(self._follow_files())
        while True:
            self._loads = self._load.measure(self._active)
            if not self._is_rolling:
                self._decide()
                await self._fill()
            self._ask_for_backlog()
            self._output.show(self.view())
            await asyncio.sleep(_TICK_S)

    async def shut_down(self) -> None:
        """Let all processes finish their messages and end; those that do not within the grace time are killed."""
        for task in list(self._tasks):
            task.cancel()
        alive = [each for each in (*self._active, *self._stopping) if each.is_alive]
        self._active.clear()
        if alive:
            self._output.tell(
                f"stopping {processes_text(len(alive))}: messages in progress are finished, for at most "
                f"{self._options.limits.grace_s:g} s; Ctrl-C again ends them at once"
            )
        await asyncio.gather(*(self._stop(each) for each in alive))

    def kill(self) -> None:
        """End all processes at once."""
        for each in (*self._active, *self._stopping):
            each.kill()

    # Starting

    async def _start_first(self) -> None:
        """Load the application in a first process; with --reload, as often as its files change until it can be."""
        while True:
            process = await self._spawn()
            loaded = await process.loaded
            if loaded is not None:
                break
            self._active.remove(process)
            code = await process.wait()
            problem = process.problem or f"the process that loads {self._options.target} {how_it_ended(code)}"
            if not self._options.is_reloaded or not self._files:
                raise BadArgument(problem)
            self._output.tell(f"{problem}\nwaiting for a change of its files")
            await self._next_change()
        self._adopt(loaded)
        # The partitions of topics, which come before the minimum, are known with the first backlog.
        self._size = 1 if any(each.kind == "group" for each in loaded.sources) else self._rules.minimum
        sources = ", ".join(each.name for each in loaded.sources) or "periodic work"
        self._output.tell(f"{self._options.target} runs in {processes_text(self._size)}: {sources}")
        process.run()
        self._begin(self._watch(process))

    def _adopt(self, loaded: ApplicationLoaded) -> None:
        """Use the sources and the bound of the application that was loaded."""
        self._load.set_sources(loaded.sources)
        rules = self._options.rules
        if loaded.most is not None and loaded.most < rules.maximum:
            self._output.tell(f"at most {processes_text(loaded.most)}: {loaded.most_reason}")
            rules = replace(rules, minimum=min(rules.minimum, loaded.most), maximum=loaded.most)
        if rules != self._rules:
            self._rules = rules
            self._scaler = PoolScaler(rules, time.monotonic())

    async def _spawn(self) -> PoolProcess:
        self._numbers += 1
        printed = self._output.printed if self._output.is_live else None
        process = PoolProcess(self._numbers, self._options.target, self._options.limits, self._heard, printed)
        await process.start()
        self._active.append(process)
        return process

    async def _fill(self) -> None:
        """Start the processes that are missing, unless it is too soon after a failure."""
        while len(self._active) < self._size and time.monotonic() >= self._start_after_s:
            try:
                self._begin(self._bring_up(await self._spawn()))
            except OSError as error:
                self._start_later(f"no process can be started: {error.strerror or error}")

    async def _bring_up(self, process: PoolProcess) -> None:
        if await process.loaded is not None and process.state == "loaded":
            process.run()
        await self._watch(process)

    def _begin(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # What happens to processes

    def _heard(self, process: PoolProcess, message: Message) -> None:
        match message:
            case Backlog():
                self._load.note(message)
            case ApplicationLoaded() | LoadFailed() | Report():
                self._files.watch(message.files, process.started_at_s)

    async def _watch(self, process: PoolProcess) -> None:
        code = await process.wait()
        if process not in self._active:
            return
        self._active.remove(process)
        self._restarts += 1
        if process.running_s and time.monotonic() - process.running_s >= _STEADY_S:
            self._delays.reset()
        what = f"process {process.number} (pid {process.pid}) {how_it_ended(code)}"
        if process.problem:
            what += f": {process.problem}"
        self._start_later(what)

    def _start_later(self, what: str) -> None:
        """Say what went wrong, and wait before the next start: longer with each failure in a row."""
        now_s = time.monotonic()
        if now_s >= self._start_after_s:
            self._start_after_s = now_s + self._delays.next()
        if self._delays.failures >= _CRASH_LOOP:
            what += f"\ncrash loop: {self._delays.failures} starts in a row have failed within {_STEADY_S:g} s"
        self._output.tell(f"{what}; another one is started in {self._start_after_s - now_s:.1f} s")

    async def _stop(self, process: PoolProcess) -> None:
        if process in self._active:
            self._active.remove(process)
        self._stopping.append(process)
        if not await process.stop():
            self._output.tell(
                f"process {process.number} (pid {process.pid}) did not stop within "
                f"{self._options.limits.grace_s:g} s and was killed: the messages that it had in progress come back "
                "when their leases end"
            )
        self._stopping.remove(process)

    # Scaling

    def _decide(self) -> None:
        if not self._load.is_known:
            return
        decision = self._scaler.decide(self._loads, self._size, time.monotonic())
        self._reason = decision.reason
        if decision.count == self._size:
            return
        self._output.tell(f"{self._size} -> {processes_text(decision.count)}: {decision.reason}")
        self._size = decision.count
        while len(self._active) > self._size:
            # The last one: it has loaded nothing yet, or the fewest messages.
            self._begin(self._stop(self._active.pop()))

    def _ask_for_backlog(self) -> None:
        running = [each for each in self._active if each.state == "running"]
        if running:
            # One that has reported lately: another may hang.
            max(running, key=lambda each: each.reported_s).look()

    def view(self) -> PoolView:
        """The state of the pool. May be called from any thread."""
        return PoolView(
            self._options.target,
            self._size,
            self._rules,
            self._reason,
            self._load.problem,
            self._loads,
            (*self._active, *self._stopping),
            dict(self._load.handled),
            self._restarts,
        )

    # Reloading

    async def _next_change(self) -> list[str]:
        """The files that were changed, once there are any and no more have followed."""
        found: list[str] = []
        while True:
            await asyncio.sleep(_WATCH_EVERY_S)
            more = self._files.changed()
            if found and not more:
                return found
            found += more

    async def _follow_files(self) -> None:
        while True:
            changed = await self._next_change()
            names = ", ".join(sorted({Path(each).name for each in changed}))
            self._output.tell(f"{names} changed: the processes are replaced one after the other")
            self._is_rolling = True
            try:
                await self._replace_all()
            except OSError as error:
                self._output.tell(f"no process can be started: {error.strerror or error}; the others go on")
            finally:
                self._is_rolling = False
            # Those that have ended are started at once: the change may be what they needed.
            self._delays.reset()
            self._start_after_s = 0.0

    async def _replace_all(self) -> None:
        """Load each new process before an old one is stopped. Code that cannot be loaded leaves the old ones alone."""
        loaded = None
        for old in list(self._active):
            new = await self._spawn()
            loaded = await new.loaded
            if loaded is None:
                self._active.remove(new)
                await new.wait()
                self._output.tell(f"{new.problem}\nthe processes with the old code go on until it can be loaded")
                return
            await self._stop(old)
            new.run()
            self._begin(self._watch(new))
        if loaded is not None:
            self._adopt(loaded)
            self._output.tell(f"{processes_text(len(self._active))} run the new code")
