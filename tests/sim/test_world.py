"""The simulator's own promises: time, processes, pauses, deaths, and that a seed gives one run."""

import asyncio
import logging

import pytest

from headrace.testing.sim.world import Process, ProcessClock, SimulationError, World


def test_time_goes_on_without_waiting_for_it() -> None:
    world = World(1)
    process = world.process("a")

    async def main() -> float:
        await asyncio.sleep(86_400)
        return asyncio.get_running_loop().time()

    assert world.run(process, main(), limit_s=100_000) == 86_400


def test_things_happen_in_the_order_of_their_time_over_all_processes() -> None:
    world = World(1)
    seen: list[str] = []

    async def say(what: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        seen.append(what)

    a, b = world.process("a"), world.process("b")
    a.enter(lambda: a.create_task(say("third", 3)))
    b.enter(lambda: b.create_task(say("second", 2)))
    a.enter(lambda: a.create_task(say("first", 1)))
    world.run_for(10)
    assert seen == ["first", "second", "third"]
    assert world.now_s == 10


def test_a_paused_process_does_nothing_while_time_goes_on_for_it_too() -> None:
    world = World(1)
    seen: list[float] = []
    clock = ProcessClock(world)

    async def tick() -> None:
        for _ in range(3):
            await asyncio.sleep(1)
            seen.append(clock.monotonic_ms())

    process, nemesis = world.process("a"), world.process("nemesis")
    process.enter(lambda: process.create_task(tick()))
    world.post(nemesis, 1.5, process.pause)
    world.post(nemesis, 10, process.resume)
    world.run_for(20)
    assert seen == [1000, 10_000, 11_000]


def test_what_a_process_is_asked_while_it_is_paused_happens_in_order_when_it_goes_on() -> None:
    world = World(1)
    process = world.process("a")
    seen: list[int] = []
    process.pause()
    for number in range(5):
        world.post(process, 0.1 * number, seen.append, number)
    world.run_for(1)
    assert seen == []
    process.resume()
    world.run_for(0)
    assert seen == [0, 1, 2, 3, 4]


def test_a_dead_process_does_nothing_more_and_its_tasks_end_where_they_are() -> None:
    world = World(1)
    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(5)
            seen.append("done")
        finally:
            seen.append("ended")
            asyncio.get_running_loop().call_soon(seen.append, "said from the grave")

    process = world.process("a")
    process.on_death.append(lambda: seen.append("died"))
    process.enter(lambda: process.create_task(work()))
    world.run_for(1)
    process.die()
    process.reap()
    world.run_for(10)
    assert seen == ["died", "ended"]


def test_a_process_that_dies_in_the_middle_of_something_does_no_more_of_it() -> None:
    world = World(1)
    process = world.process("a")
    seen: list[str] = []

    async def work() -> None:
        process.die()
        await asyncio.sleep(0)
        seen.append("went on")

    process.enter(lambda: process.create_task(work()))
    world.run_for(1)
    assert seen == []


def test_waiting_for_what_cannot_come_is_found_out() -> None:
    world = World(1)
    process = world.process("a")

    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(SimulationError, match="deadlock"):
        world.run(process, main())


def test_waiting_too_long_is_found_out() -> None:
    world = World(1)
    process = world.process("a")

    async def main() -> None:
        for _ in range(1000):
            await asyncio.sleep(1)

    with pytest.raises(SimulationError, match="not done within"):
        world.run(process, main(), limit_s=60)


def test_spinning_is_found_out() -> None:
    world = World(1)
    process = world.process("a")

    async def main() -> None:
        for _ in range(10**9):
            await asyncio.sleep(0)

    with pytest.raises(SimulationError, match="spins"):
        world.run(process, main())


def test_an_error_that_nobody_looks_at_ends_the_run() -> None:
    world = World(1)
    process = world.process("a")

    def fail() -> None:
        raise ValueError("out of range")

    world.post(process, 1, fail)
    with pytest.raises(SimulationError, match="out of range"):
        world.run_for(2)


def test_work_in_threads_is_done_after_a_while_in_the_same_thread() -> None:
    world = World(1)
    process = world.process("a")

    async def main() -> tuple[float, int]:
        value = await asyncio.to_thread(lambda: 17)
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        return asyncio.get_running_loop().time(), value

    at_s, value = world.run(process, main())
    assert value == 17
    assert 0 < at_s < 1


def test_timeouts_locks_events_and_groups_of_tasks_work() -> None:
    world = World(1)
    process = world.process("a")

    async def main() -> str:
        lock, event = asyncio.Lock(), asyncio.Event()

        async def hold() -> None:
            async with lock:
                await asyncio.sleep(5)
                event.set()

        holding = asyncio.create_task(hold())
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await lock.acquire()
        await asyncio.wait_for(event.wait(), 10)
        await holding
        got = await asyncio.gather(asyncio.sleep(1, "x"), asyncio.sleep(2, "y"))
        return "".join(got)

    assert world.run(process, main()) == "xy"
    assert world.now_s == 7


def test_a_clock_may_be_off_and_jump_while_steady_time_does_not() -> None:
    world = World(1)
    clock, other = ProcessClock(world), ProcessClock(world, skew_ms=-500)
    assert clock.wall_ms() - other.wall_ms() == 500
    world.run_for(1)
    clock.skew_ms -= 3_600_000
    assert clock.monotonic_ms() == other.monotonic_ms() == 1000


def test_the_trace_has_what_was_logged_with_the_process_and_the_time() -> None:
    world = World(1)
    process = world.process("a")
    logger = logging.getLogger("headrace.a_test_of_the_simulator")
    logger.addHandler(world.trace)
    logger.propagate = False
    try:

        async def main() -> None:
            await asyncio.sleep(2)
            logger.warning("the disk is %s", "slow")
            try:
                raise OSError("gone")
            except OSError:
                logger.exception("it failed")

        world.run(process, main())
    finally:
        logger.removeHandler(world.trace)
        logger.propagate = True
    text = world.trace.text()
    assert "2.000000" in text
    assert "a  warning: the disk is slow" in text
    assert world.trace.alarms == ["a: it failed: OSError('gone')"]


def _one_run(seed: int) -> list[tuple[float, int]]:
    world = World(seed)
    seen: list[tuple[float, int]] = []

    async def wander(process: Process, number: int) -> None:
        for _ in range(20):
            await asyncio.sleep(world.random.random())
            await asyncio.to_thread(lambda: None)
            seen.append((world.now_s, number))

    for number in range(4):
        process = world.process(str(number))
        process.enter(lambda p=process, n=number: p.create_task(wander(p, n)))  # type: ignore[misc]
    world.run_for(60)
    return seen


def test_a_seed_gives_one_run() -> None:
    assert _one_run(5) == _one_run(5)
    assert _one_run(5) != _one_run(6)
