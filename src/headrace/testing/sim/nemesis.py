"""Fault injection for a simulated cluster: random faults, several at a time, each for a while.

`heal` ends all of them: processes run, links work, disks are fast.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import combinations

from headrace.testing.sim.cluster import SimBroker, SimCluster

SimFault = Callable[[], Awaitable[None]]


class Nemesis:
    """Injects faults at random."""

    def __init__(self, cluster: SimCluster, neighbours: Sequence[str] = ()) -> None:
        """`neighbours`: the brokers of another cluster that this one is linked with."""
        self._neighbours = neighbours
        self._cluster = cluster
        self._store = cluster.store.process.name
        self._world = cluster.world
        self._random = cluster.world.random
        self._in_progress: set[asyncio.Task[None]] = set()
        self._faults: list[tuple[SimFault, float]] = [
            (self._kill, 4),
            (self._kill_in_a_write, 3),
            (self._kill_all, 1),
            (self._stop, 2),
            (self._pause, 4),
            (self._isolate, 3),
            (self._cut_off_from_store, 3),
            (self._cut_off_from_store_and_one, 2),
            (self._cut_between_two, 2),
            (self._cut_in_halves, 1),
            (self._lose_frames, 2),
            (self._slow_network, 2),
            (self._doubtful_store, 2),
            (self._late_watches, 2),
            (self._broken_watches, 2),
            (self._compact_store, 1),
            (self._clock_jump, 1),
            (self._slow_disk, 2),
            (self._failing_disk, 1),
            (self._move_a_partition, 3),
        ]
        if neighbours:
            self._faults.append((self._cut_off_from_neighbours, 4))

    async def run(self, duration_s: float) -> None:
        """Inject faults for this long. Some may still be active on return."""
        end_s = self._world.now_s + duration_s
        faults, weights = zip(*self._faults, strict=True)
        while (left_s := end_s - self._world.now_s) > 0:
            await asyncio.sleep(min(left_s, self._random.expovariate(1 / 1.2)))
            if len(self._in_progress) < 4:
                (fault,) = self._random.choices(faults, weights)
                task = asyncio.get_running_loop().create_task(fault())
                self._in_progress.add(task)
                task.add_done_callback(self._in_progress.discard)

    def heal(self) -> None:
        """End all faults and start every broker."""
        self._trace("heals everything")
        for task in self._in_progress:
            task.cancel()
        cluster = self._cluster
        cluster.network.usual.loss = 0.0
        cluster.network.usual.slow_share = 0.01
        cluster.network.mend()
        for broker in cluster.brokers.values():
            broker.heal()
        for broker in cluster.brokers.values():
            if not broker.is_up:
                broker.start()

    # Processes

    async def _kill(self) -> None:
        broker = self._any_up()
        if broker is not None:
            broker.kill(self._how_to_die())
            await self._restart(broker)

    async def _kill_in_a_write(self) -> None:
        broker = self._any_up()
        if broker is None:
            return
        steps = self._random.randint(1, 40)
        self._trace(f"kills {broker.name} at its step {steps} on the disk")
        broker.kill_at_step(steps, self._random.random(), self._how_to_die())
        await asyncio.sleep(self._random.uniform(0.5, 3))
        broker.kill(self._how_to_die())
        await self._restart(broker)

    async def _kill_all(self) -> None:
        self._trace("kills all brokers")
        for broker in self._cluster.brokers.values():
            broker.kill(self._how_to_die())
        await asyncio.gather(*(self._restart(broker) for broker in self._cluster.brokers.values()))

    async def _stop(self) -> None:
        broker = self._any_up()
        if broker is not None:
            self._trace(f"stops {broker.name}")
            await broker.stop()
            await self._restart(broker)

    async def _restart(self, broker: SimBroker) -> None:
        await asyncio.sleep(self._random.choice((0.05, 1.0, 4.0, 9.0)) * self._random.random())
        if not broker.is_up:
            broker.start()

    async def _pause(self) -> None:
        broker = self._any_up()
        if broker is None:
            return
        lease_s = self._cluster.session_timeout_s
        duration_s = self._random.choice((0.2, lease_s, lease_s + 2)) * self._random.uniform(0.3, 1.2)
        self._trace(f"pauses {broker.name} for {duration_s:.2f} s")
        broker.pause()
        await asyncio.sleep(duration_s)
        broker.resume()

    def _how_to_die(self) -> str:
        if self._cluster.loses_unsynced:
            return self._random.choice(("power", "power", "power-bare", "kill"))
        return "kill"

    # Network

    async def _isolate(self) -> None:
        broker = self._any()
        others = [other.name for other in self._cluster.brokers.values() if other is not broker]
        others += [self._store, self._cluster.clients_name, *self._neighbours]
        await self._cut([(broker.name, other) for other in others], f"isolates {broker.name}")

    async def _cut_off_from_store(self) -> None:
        broker = self._any()
        await self._cut([(broker.name, self._store)], f"cuts {broker.name} off the store")

    async def _cut_off_from_store_and_one(self) -> None:
        """A leader that cannot shrink the ISR while a member of it is unreachable."""
        one, other = self._random.sample(sorted(self._cluster.brokers), 2)
        name, far = self._cluster.brokers[one].name, self._cluster.brokers[other].name
        await self._cut([(name, self._store), (name, far)], f"cuts {name} off the store and {far}")

    async def _cut_between_two(self) -> None:
        one, other = self._random.sample(sorted(self._cluster.brokers), 2)
        pair = (self._cluster.brokers[one].name, self._cluster.brokers[other].name)
        await self._cut([pair], f"cuts between {pair[0]} and {pair[1]}")

    async def _cut_in_halves(self) -> None:
        names = [broker.name for broker in self._cluster.brokers.values()]
        some = self._random.choice([*combinations(names, len(names) // 2)])
        pairs = [(one, other) for one in some for other in names if other not in some]
        await self._cut(pairs, f"cuts {', '.join(some)} off the other brokers")

    async def _cut_off_from_neighbours(self) -> None:
        pairs = [(broker.name, other) for broker in self._cluster.brokers.values() for other in self._neighbours]
        await self._cut(pairs, "cuts between the clusters")

    async def _cut(self, pairs: list[tuple[str, str]], what: str) -> None:
        way = self._random.choice(("both", "both", "there", "back"))
        self._trace(f"{what} ({way})")
        network = self._cluster.network
        for one, other in pairs:
            if way != "back":
                network.cut(one, other)
            if way != "there":
                network.cut(other, one)
        await asyncio.sleep(self._random.choice((0.5, 3, 8)) * self._random.random())
        self._trace("mends the network")
        network.mend()

    async def _lose_frames(self) -> None:
        share = self._random.choice((0.005, 0.02, 0.1))
        self._trace(f"loses {share:.1%} of all frames")
        self._cluster.network.usual.loss = share
        await asyncio.sleep(self._random.uniform(1, 6))
        self._cluster.network.usual.loss = 0.0

    async def _slow_network(self) -> None:
        self._trace("slows the network down")
        self._cluster.network.usual.slow_share = self._random.choice((0.1, 0.5))
        await asyncio.sleep(self._random.uniform(1, 6))
        self._cluster.network.usual.slow_share = 0.01

    # The store

    async def _doubtful_store(self) -> None:
        broker = self._any()
        self._trace(f"loses answers of the store to {broker.name}")
        if broker.store is not None:
            broker.store.failing = self._random.choice((0.1, 0.4))
        await asyncio.sleep(self._random.uniform(1, 5))
        broker.heal_store()

    async def _late_watches(self) -> None:
        broker = self._any()
        lag_s = self._random.choice((0.3, 2.0, 5.0))
        self._trace(f"lets {broker.name} hear of changes up to {lag_s:g} s late")
        if broker.store is not None:
            broker.store.lag_watches(lag_s)
        await asyncio.sleep(self._random.uniform(1, 6))
        broker.heal_store()

    async def _broken_watches(self) -> None:
        broker = self._any()
        self._trace(f"breaks the watch of {broker.name}")
        if broker.store is not None:
            if self._random.random() < 0.5:
                broker.store.break_watches()
            else:
                broker.store.lose_watches()

    async def _compact_store(self) -> None:
        self._trace("compacts the store")
        self._cluster.store.compact()

    # Clocks and disks

    async def _clock_jump(self) -> None:
        broker = self._any()
        jump_ms = self._random.choice((-3_600_000, -5_000, 5_000, 3_600_000))
        self._trace(f"moves the clock of {broker.name} by {jump_ms} ms")
        broker.clock.skew_ms += jump_ms

    async def _slow_disk(self) -> None:
        broker = self._any()
        self._trace(f"slows the disk of {broker.name} down")
        broker.flush_times.slow_share = 0.7
        broker.flush_times.slow_s = self._random.choice((0.3, 2.0))
        await asyncio.sleep(self._random.uniform(1, 5))
        broker.heal_disk()

    async def _failing_disk(self) -> None:
        broker = self._any_up()
        if broker is not None:
            self._trace(f"lets every sync of {broker.name} fail")
            broker.fail_disk()
            await asyncio.sleep(self._random.uniform(0.5, 5))
            broker.kill(self._how_to_die())
            await self._restart(broker)

    # An operator

    async def _move_a_partition(self) -> None:
        """Request a reassignment of a partition, or its cancellation."""
        cluster, random = self._cluster, self._random
        broker = self._any_up()
        places = sorted(cluster.places())
        if broker is None or not places:
            return
        place = random.choice(places)
        replicas = random.sample(sorted(cluster.brokers), min(len(cluster.brokers), random.choice((2, 3))))
        wanted = None if random.random() < 0.2 else replicas
        self._trace(f"asks {broker.name} to move {place[0]}-{place[1]} to {wanted}")
        broker.move(place, wanted)

    # Helpers

    def _any(self) -> SimBroker:
        return self._cluster.brokers[self._random.choice(sorted(self._cluster.brokers))]

    def _any_up(self) -> SimBroker | None:
        up = [broker for _, broker in sorted(self._cluster.brokers.items()) if broker.is_up]
        return self._random.choice(up) if up else None

    def _trace(self, what: str) -> None:
        self._world.trace.note("nemesis", "%s", what)
