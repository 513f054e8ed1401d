"""The controller: leaders from the ISR only, nothing emptied, epochs that grow, and an end to every reassignment."""

from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.property.cluster.images import BROKERS, changed, images, with_broker, with_state
from tests.property.profile import examples

from headrace.cluster import reassignment
from headrace.cluster.controller import Changes, Event, decide, reconciled
from headrace.model.errors import InvalidReplicaAssignment
from headrace.model.ids import NO_LEADER, BrokerId
from headrace.model.image import BrokerState, ClusterImage, PartitionState

EVERYTHING = Event(everything=True)


def check_step(image: ClusterImage, changes: Changes) -> None:
    """What must hold of any decision, for each partition that it changes."""
    for (topic_id, index), new in changes.partitions.items():
        topic = image.topic_by_id(topic_id)
        assert topic is not None
        old = topic.partitions[index]
        assert new.isr, "an ISR is never emptied"
        assert set(new.isr) <= set(new.replicas)
        assert len(set(new.replicas)) == len(new.replicas)
        assert set(new.isr) <= set(old.isr), "only the leader takes somebody into the ISR"
        assert new.leader == NO_LEADER or new.leader in old.isr, "never an unclean election"
        assert new.leader == NO_LEADER or new.leader in new.isr
        assert new.partition_epoch == old.partition_epoch + 1
        assert new.leader_epoch >= old.leader_epoch
        if new.leader != old.leader:
            assert new.leader_epoch == old.leader_epoch + 1
        check_leaving(old, new)
        if new.leader == NO_LEADER:
            assert not any(map(image.can_lead, new.isr))


def check_leaving(old: PartitionState, new: PartitionState) -> None:
    if not set(old.replicas) <= set(new.replicas):
        assert new.leader_epoch > old.leader_epoch, "what a former replica asks for does not count any more"


def is_right(image: ClusterImage, state: PartitionState) -> None:
    """What must hold of every partition once everything was decided."""
    can_lead = [broker for broker in state.isr if image.can_lead(broker)]
    if can_lead:
        assert state.leader in can_lead
        assert list(state.isr) == can_lead, "whoever is dead, starting or stopping has left"
    else:
        stopping = {broker.broker_id for broker in image.brokers.values() if broker.state is BrokerState.STOPPING}
        assert state.leader == NO_LEADER or (image.is_alive(state.leader) and state.leader in stopping)


def decided(image: ClusterImage, event: Event) -> ClusterImage:
    """The image when everything that follows from an event has been decided, each time by what has just changed."""
    for _ in range(100):
        changes = decide(image, event)
        if not changes:
            return image
        check_step(image, changes)
        image = changed(image, changes)
        touched = frozenset(broker.broker_id for broker in changes.brokers)
        event = Event(brokers=touched, partitions=frozenset(changes.partitions), is_balancing=event.is_balancing)
    raise AssertionError("there is no end to the decisions")


@settings(max_examples=examples(40))
@given(images(), st.booleans())
def test_after_the_decisions_all_is_right_and_nothing_is_left_to_decide(
    image: ClusterImage, is_balancing: bool
) -> None:
    after = decided(image, Event(everything=True, is_balancing=is_balancing))
    for topic in after.topics.values():
        for state in topic.partitions:
            is_right(after, state)
    last = decide(after, Event(everything=True, is_balancing=is_balancing))
    assert not last
    for broker in after.brokers.values():
        if broker.is_alive and broker.state is BrokerState.STARTING:
            assert last.refused[broker.broker_id]
            assert broker.has_lost_data


@settings(max_examples=examples(40))
@given(images(), st.sampled_from(BROKERS))
def test_looking_where_something_changed_is_enough(image: ClusterImage, broker: BrokerId) -> None:
    image = decided(image, EVERYTHING)
    assume(broker in image.brokers)
    info = image.brokers[broker]
    turned = with_broker(image, replace(info, is_alive=not info.is_alive, epoch=8))
    after = decided(turned, Event(brokers=frozenset({broker})))
    assert not decide(after, EVERYTHING)


@settings(max_examples=examples(40))
@given(images())
def test_a_restarted_broker_leads_with_a_new_epoch_or_not_at_all(image: ClusterImage) -> None:
    changes = decide(image, EVERYTHING)
    starting = {broker.broker_id for broker in image.brokers.values() if broker.is_alive and not broker.can_lead}
    after = changed(image, changes)
    for name, topic in after.topics.items():
        for state, before in zip(topic.partitions, image.topics[name].partitions, strict=True):
            if state.leader in starting and image.brokers[state.leader].state is BrokerState.STARTING:
                assert state.leader_epoch > before.leader_epoch
                assert state.isr == (state.leader,)
                assert not any(image.can_lead(broker) for broker in before.isr)
                assert not image.brokers[state.leader].has_lost_data


@settings(max_examples=examples(40))
@given(images())
def test_settling_is_idempotent(image: ClusterImage) -> None:
    for topic in image.topics.values():
        for state in topic.partitions:
            once = reconciled(image, state)
            if not any(image.brokers[b].state is BrokerState.STARTING for b in state.isr):
                assert reconciled(image, once) is once


@settings(max_examples=examples(40))
@given(images(), st.data())
def test_a_move_can_be_taken_back(image: ClusterImage, data: st.DataObject) -> None:
    for topic in image.topics.values():
        for state in topic.partitions:
            still = replace(state, adding=(), removing=())
            wanted = data.draw(st.lists(st.sampled_from(sorted(image.brokers)), min_size=1, unique=True))
            moving = reassignment.begun(still, wanted)
            assert reassignment.target(moving) == tuple(wanted)
            assert set(moving.replicas) == set(wanted) | set(still.replicas)
            assert (moving.isr, moving.leader) == (still.isr, still.leader)
            other = data.draw(st.lists(st.sampled_from(sorted(image.brokers)), min_size=1, unique=True))
            assert reassignment.target(reassignment.begun(moving, other)) == tuple(other)
            assert set(moving.isr) <= set(reassignment.begun(moving, other).replicas)
            check_leaving(moving, reassignment.begun(moving, other))
            back = reassignment.cancelled(moving, image.can_lead)
            check_leaving(moving, back)
            assert set(back.replicas) == set(still.replicas)
            assert not back.is_reassigning
            assert set(back.isr) <= set(back.replicas)


@settings(max_examples=examples(40))
@given(images(), st.integers(1, 4))
def test_a_topic_that_the_cluster_needs_gets_replicas_as_far_as_there_are_brokers(
    image: ClusterImage, factor: int
) -> None:
    image = decided(image, EVERYTHING)
    factors = dict.fromkeys(list(image.topics)[:1], factor)
    for _ in range(50):
        changes = decide(image, EVERYTHING, factors)
        if not changes:
            break
        check_step(image, changes)
        image = changed(image, changes)
        for name in factors:
            for index, state in enumerate(image.topics[name].partitions):
                if image.can_lead(state.leader):
                    isr = state.isr + tuple(b for b in state.replicas if image.can_lead(b) and b not in state.isr)
                    grown = replace(state, isr=isr, partition_epoch=state.partition_epoch + 1)
                    image = with_state(image, image.topics[name], index, grown)
    else:
        raise AssertionError("there is no end to the decisions")
    candidates = {b.broker_id for b in image.brokers.values() if b.can_lead and not b.is_draining}
    for name in factors:
        for state in image.topics[name].partitions:
            if image.can_lead(state.leader) and not state.is_reassigning:
                assert len(state.replicas) >= factor or candidates <= set(state.replicas)


class Cluster(RuleBasedStateMachine):
    """Brokers die, come back, stop, lose their disks; leaders change ISRs; partitions move. Someone always decides."""

    def __init__(self) -> None:
        super().__init__()
        self.image: ClusterImage

    @initialize(image=images())
    def begin(self, image: ClusterImage) -> None:
        self.image = image
        self.decide(EVERYTHING)

    def decide(self, event: Event) -> None:
        self.image = decided(self.image, event)

    def broker(self, data: st.DataObject, *states: BrokerState, is_alive: bool) -> BrokerId | None:
        fitting = [b.broker_id for b in self.image.brokers.values() if b.is_alive is is_alive and b.state in states]
        return data.draw(st.sampled_from(fitting)) if fitting else None

    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        broker = self.broker(data, *BrokerState, is_alive=True)
        if broker is not None:
            self.image = with_broker(self.image, replace(self.image.brokers[broker], is_alive=False))
            self.decide(Event(brokers=frozenset({broker})))

    @rule(data=st.data(), with_another_disk=st.sampled_from([False, False, True]))
    def start(self, data: st.DataObject, with_another_disk: bool) -> None:
        broker = self.broker(data, *BrokerState, is_alive=False)
        if broker is not None:
            info = self.image.brokers[broker]
            back = replace(info, is_alive=True, epoch=info.epoch + 1, state=BrokerState.STARTING)
            if with_another_disk:
                back = replace(back, former_data_dir="before")
            self.image = with_broker(self.image, back)
            self.decide(Event(brokers=frozenset({broker})))

    @rule(data=st.data())
    def stop(self, data: st.DataObject) -> None:
        broker = self.broker(data, BrokerState.ACTIVE, is_alive=True)
        if broker is not None:
            self.image = with_broker(self.image, replace(self.image.brokers[broker], state=BrokerState.STOPPING))
            self.decide(Event(brokers=frozenset({broker})))
            for topic in self.image.topics.values():
                for state in topic.partitions:
                    if state.leader == broker:
                        assert not any(map(self.image.can_lead, state.isr)), "leadership was handed over"

    @rule(data=st.data(), is_draining=st.booleans())
    def drain(self, data: st.DataObject, is_draining: bool) -> None:
        if self.image.brokers:
            broker = data.draw(st.sampled_from(sorted(self.image.brokers)))
            self.image = with_broker(self.image, replace(self.image.brokers[broker], is_draining=is_draining))
            self.decide(Event(brokers=frozenset({broker})))

    @rule(data=st.data())
    def catch_up(self, data: st.DataObject) -> None:
        """Every follower that is up gets into the ISR, of some partitions."""
        for topic in tuple(self.image.topics.values()):
            for index, state in enumerate(topic.partitions):
                if self.image.can_lead(state.leader) and data.draw(st.booleans()):
                    isr = state.isr + tuple(b for b in state.replicas if self.image.can_lead(b) and b not in state.isr)
                    if isr != state.isr:
                        grown = replace(state, isr=isr, partition_epoch=state.partition_epoch + 1)
                        self.image = with_state(self.image, topic, index, grown)
                        self.decide(Event(partitions=frozenset({(topic.topic_id, index)})))

    @rule(data=st.data(), is_cancelled=st.booleans())
    def move(self, data: st.DataObject, is_cancelled: bool) -> None:
        topics = [topic for topic in self.image.topics.values() if topic.partitions]
        if not topics or not self.image.brokers:
            return
        topic = data.draw(st.sampled_from(topics))
        index = data.draw(st.integers(0, len(topic.partitions) - 1))
        state = topic.partitions[index]
        if is_cancelled:
            try:
                new = reassignment.cancelled(state, self.image.can_lead)
            except InvalidReplicaAssignment:
                return
        else:
            wanted = data.draw(
                st.lists(st.sampled_from(sorted(self.image.brokers)), min_size=1, max_size=4, unique=True)
            )
            new = reassignment.begun(state, wanted)
        self.image = with_state(self.image, topic, index, new)
        self.decide(Event(partitions=frozenset({(topic.topic_id, index)})))

    @rule()
    def balance(self) -> None:
        self.decide(Event(is_balancing=True))

    @invariant()
    def all_is_right(self) -> None:
        for topic in self.image.topics.values():
            for state in topic.partitions:
                assert set(state.adding) | set(state.removing) | set(state.isr) <= set(state.replicas)
                is_right(self.image, state)
        assert not decide(self.image, EVERYTHING), "whoever becomes controller now finds nothing to do"

    def teardown(self) -> None:
        """When everybody is up and catches up, every move ends and all that is in sync somewhere is led."""
        if not hasattr(self, "image"):
            return
        for broker in tuple(self.image.brokers):
            info = replace(self.image.brokers[broker], is_alive=True, state=BrokerState.STARTING, former_data_dir="")
            self.image = with_broker(self.image, info)
        self.decide(EVERYTHING)
        for _ in range(200):
            if not self._all_catch_up():
                break
        candidates = [b for b in self.image.brokers.values() if not b.is_draining]
        for topic in self.image.topics.values():
            for state in topic.partitions:
                assert state.leader != NO_LEADER
                assert not state.is_reassigning
                assert set(state.isr) == set(state.replicas)
                if len(candidates) >= len(state.replicas):
                    assert not any(self.image.brokers[broker].is_draining for broker in state.replicas)

    def _all_catch_up(self) -> bool:
        is_changed = False
        for topic in tuple(self.image.topics.values()):
            for index in range(len(topic.partitions)):
                state = self.image.topics[topic.name].partitions[index]
                if set(state.isr) != set(state.replicas):
                    isr = state.isr + tuple(b for b in state.replicas if b not in state.isr)
                    grown = replace(state, isr=isr, partition_epoch=state.partition_epoch + 1)
                    self.image = with_state(self.image, topic, index, grown)
                    self.decide(Event(partitions=frozenset({(topic.topic_id, index)})))
                    is_changed = True
        return is_changed


TestCluster = Cluster.TestCase
TestCluster.settings = settings(max_examples=examples(40), stateful_step_count=25, deadline=None)
