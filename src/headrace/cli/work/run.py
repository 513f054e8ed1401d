"""The work of `headrace work`: runs a pool until a signal."""

import asyncio
import signal
from contextlib import ExitStack

from headrace.cli.errors import BadArgument
from headrace.cli.metrics_listener import MetricsListener
from headrace.cli.work.metrics import families
from headrace.cli.work.pool import PoolOptions, WorkPool
from headrace.cli.work.process import ProcessLimits
from headrace.cli.work.status import PoolOutput
from headrace.model.scale import ScaleRules

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_pool(target: str, rules: ScaleRules, *, limits: ProcessLimits, is_reloaded: bool, listen: str) -> None:
    """Run the client of an application in a pool of processes until SIGTERM or Ctrl-C; `listen` is for its metrics."""
    if rules.minimum > rules.maximum:
        raise BadArgument(f"--min {rules.minimum} is more than --max {rules.maximum}")
    asyncio.run(_run(PoolOptions(target, rules, limits, is_reloaded), listen))


async def _run(options: PoolOptions, listen: str) -> None:
    output = PoolOutput()
    pool = WorkPool(options, output)
    stopping = asyncio.Event()

    def interrupted() -> None:
        if stopping.is_set():
            pool.kill()
        stopping.set()

    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, interrupted)
    with ExitStack() as stack:
        if listen:
            listener = MetricsListener(listen, lambda: families(pool.view()))
            stack.callback(listener.close)
            output.tell(f"serving {listener.url}")
        stack.enter_context(output.opened())
        working = loop.create_task(pool.work())
        stop = loop.create_task(stopping.wait())
        try:
            await asyncio.wait((working, stop), return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
        finally:
            for task in (working, stop):
                task.cancel()
            await asyncio.wait((working, stop))
            await pool.shut_down()
