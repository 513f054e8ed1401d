"""Clients of both protocols of groups, which come to be members of one group."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from headrace.coordinator.result import Result
from headrace.groups.classic_protocol import Joined, JoinRequest, Synced
from headrace.groups.consumer import Heartbeat
from headrace.groups.group import JOIN, LEAVE, Beat, Effects
from headrace.groups.offsets import Committer
from headrace.groups.subscription import CONSUMER, read_assignment, read_subscription, write_assignment
from headrace.model.errors import IllegalGeneration, MemberIdRequired, RebalanceInProgress
from headrace.runtime.deferred import Deferred

if TYPE_CHECKING:
    from tests.property.groups.mixed_world import World

GROUP, TOPIC, TOPIC_ID = "g", "t", UUID(int=1)
SESSION_MS, REBALANCE_MS = 30_000, 10_000


def subscription(owned: frozenset[int]) -> bytes:
    """Version 1: the topic, no user data, what is owned. An assignment is the same but for the list of topics."""
    return b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff" + write_assignment(1, [(TOPIC, tuple(owned))] if owned else ())[2:-4]


class Client:
    """What clients of both protocols are: where they are in what they own."""

    def __init__(self, instance_id: str | None) -> None:
        self.instance_id = instance_id
        self.positions: dict[int, int] = {}

    member_id = ""
    epoch = -1

    @property
    def owned(self) -> frozenset[int]:
        return frozenset(self.positions)

    def keep(self, partitions: frozenset[int]) -> None:
        self.positions = {number: at for number, at in self.positions.items() if number in partitions}

    def take(self, partitions: frozenset[int], committed: Callable[[int], int]) -> None:
        for number in partitions - self.owned:
            self.positions[number] = committed(number)


class ClassicClient(Client):
    def __init__(self, instance_id: str | None, *, cooperates: bool) -> None:
        super().__init__(instance_id)
        self.cooperates = cooperates
        self.does: Callable[[ClassicClient, World], None] = ClassicClient.join
        self.waits = False
        self.members: dict[str, frozenset[int]] = {}
        """What each member owns, for the one that leads."""

    def step(self, world: "World") -> None:
        if not self.waits:
            self.does(self, world)

    def join(self, world: "World") -> None:
        if not self.cooperates:
            self.keep(frozenset())
        name = "cooperative" if self.cooperates else "eager"
        world.made += 1
        wants = JoinRequest(
            self.member_id,
            self.instance_id,
            "",
            "",
            SESSION_MS,
            REBALANCE_MS,
            CONSUMER,
            ((name, subscription(self.owned)),),
            f"c{world.made}",
            needs_known_id=True,
        )

        def tell(waiter: Deferred[Result[Joined]]) -> Effects:
            group = world.machine.for_join(GROUP, self.member_id, world.now)
            return group.classic_join(wants, world.image, waiter, world.now)

        world.ask(self, tell, self.joined)

    def joined(self, world: "World", told: Joined) -> None:
        self.member_id, self.epoch, self.does = told.member_id, told.generation, ClassicClient.sync
        self.members = {}
        if told.leader == told.member_id:
            for other in told.members:
                said = read_subscription(other.subscription)
                assert said is not None
                self.members[other.member_id] = frozenset(n for _, numbers in said.owned for n in numbers)

    def sync(self, world: "World") -> None:
        shares = {
            member_id: write_assignment(1, [(TOPIC, tuple(share))]) for member_id, share in self.assign(world).items()
        }

        def tell(waiter: Deferred[Result[Synced]]) -> Effects:
            group, by = world.machine.for_member(GROUP), Committer(self.member_id, self.instance_id, self.epoch)
            return group.classic_sync(by, (None, None), shares, world.image, waiter, world.now)

        world.ask(self, tell, self.synced)

    def assign(self, world: "World") -> dict[str, frozenset[int]]:
        """In turn, but nothing that another one still owns: its owner has to give it up first."""
        order = sorted(self.members)
        owners = {number: name for name, owned in self.members.items() for number in owned}
        shares: dict[str, set[int]] = {name: set() for name in order}
        for number in range(world.partitions):
            name = order[number % len(order)] if order else ""
            if name and owners.get(number, name) == name:
                shares[name].add(number)
        return {name: frozenset(share) for name, share in shares.items()}

    def synced(self, world: "World", told: Synced) -> None:
        read = read_assignment(told.assignment)
        assert read is not None
        assigned = frozenset(number for _, numbers in read for number in numbers)
        gave_up = bool(self.owned - assigned)
        self.keep(assigned)
        self.take(assigned, world.committed)
        self.does = ClassicClient.join if gave_up else ClassicClient.beat

    def beat(self, world: "World") -> None:
        def tell(_: Any) -> Effects:
            group, by = world.machine.for_member(GROUP), Committer(self.member_id, self.instance_id, self.epoch)
            group.classic_heartbeat(by, world.image, world.now)
            return []

        world.ask(self, tell, lambda *_: None)
        self.waits = False

    def refused(self, error: Exception) -> None:
        self.does = ClassicClient.join
        if isinstance(error, RebalanceInProgress):
            return
        self.keep(frozenset())
        self.epoch = -1
        if isinstance(error, MemberIdRequired):
            self.member_id = error.member_id
        elif not isinstance(error, IllegalGeneration):
            self.member_id = ""

    def leave(self, world: "World") -> None:
        def tell(_: Any) -> Effects:
            group = world.machine.for_member(GROUP)
            return group.classic_leave([(self.member_id, self.instance_id)], world.image, world.now)[1]

        world.ask(self, tell, lambda *_: None)


class ConsumerClient(Client):
    def __init__(self, member_id: str, instance_id: str | None) -> None:
        super().__init__(instance_id)
        self.member_id = member_id
        self.epoch = JOIN
        self.told: frozenset[int] = frozenset()
        self.says_all = True
        self.waits = False

    def step(self, world: "World") -> None:
        self.keep(self.told)
        owned = frozenset(self.owned)
        beat = Heartbeat(
            self.member_id,
            self.epoch,
            self.instance_id,
            rebalance_timeout_ms=REBALANCE_MS if self.says_all else -1,
            topics=(TOPIC,) if self.says_all else None,
            owned=world.places(owned),
        )
        self.says_all = True  # unless there is an answer
        world.ask(self, lambda waiter: world.heartbeat(beat, waiter), self.hear)

    def hear(self, world: "World", told: Beat) -> None:
        self.epoch, self.says_all = told.epoch, False
        if told.assignment is not None:
            self.told = frozenset(place.partition for place in told.assignment)
        if not self.owned - self.told:
            self.take(self.told, world.committed)

    def refused(self, error: Exception) -> None:
        self.keep(frozenset())
        self.epoch, self.told, self.says_all = JOIN, frozenset(), True

    def leave(self, world: "World", epoch: int = LEAVE) -> None:
        beat = Heartbeat(self.member_id, epoch, self.instance_id)
        world.ask(self, lambda waiter: world.heartbeat(beat, waiter), lambda *_: None)
