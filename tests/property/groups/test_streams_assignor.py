"""Tasks of streams groups: all assigned, evenly, where they were; standbys in other processes (invariant 60)."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.groups.streams_assignor import TaskTaker, assign_tasks
from headrace.groups.streams_tasks import NO_TASKS, StreamsTask, TaskSet

STATEFUL = frozenset({"0", "1"})

counts_by_subtopology = st.dictionaries(st.sampled_from(["0", "1", "2"]), st.integers(1, 7), min_size=1)
processes_by_member = st.dictionaries(
    st.sampled_from([f"m{at}" for at in range(7)]), st.sampled_from(["p1", "p2", "p3", "p4"]), min_size=1
)


def tasks_of(counts: dict[str, int]) -> list[StreamsTask]:
    return [StreamsTask(name, at) for name, count in counts.items() for at in range(count)]


def check(workers: dict[str, TaskTaker], tasks: list[StreamsTask], replicas: int, assigned: dict[str, TaskSet]) -> None:
    assert assigned.keys() == workers.keys()
    active = [task for one in assigned.values() for task in one.active]
    assert sorted(active) == sorted(tasks)
    sizes = [len(one.active) for one in assigned.values()]
    assert max(sizes) - min(sizes) <= 1
    wanted = min(replicas, len({worker.process_id for worker in workers.values()}) - 1)
    for task in tasks:
        homes = [
            workers[member_id].process_id
            for member_id, one in assigned.items()
            for role in (one.active, one.standby)
            if task in role
        ]
        assert len(homes) == len(set(homes)), "a process has a task twice"
        assert len(homes) == 1 + (wanted if task.subtopology in STATEFUL else 0)


@given(processes_by_member, processes_by_member, counts_by_subtopology, counts_by_subtopology, st.integers(0, 3))
def test_everything_is_assigned_evenly_whatever_was_before(
    before: dict[str, str], after: dict[str, str], first: dict[str, int], then: dict[str, int], replicas: int
) -> None:
    workers = {member_id: TaskTaker(process_id) for member_id, process_id in before.items()}
    assigned = assign_tasks(workers, tasks_of(first), STATEFUL, replicas)
    check(workers, tasks_of(first), replicas, assigned)
    workers = {
        member_id: TaskTaker(process_id, assigned.get(member_id, NO_TASKS)) for member_id, process_id in after.items()
    }
    check(workers, tasks_of(then), replicas, assign_tasks(workers, tasks_of(then), STATEFUL, replicas))


@given(processes_by_member, counts_by_subtopology, st.integers(0, 2))
def test_nothing_moves_for_nothing(processes: dict[str, str], counts: dict[str, int], replicas: int) -> None:
    workers = {member_id: TaskTaker(process_id) for member_id, process_id in processes.items()}
    once = assign_tasks(workers, tasks_of(counts), STATEFUL, replicas)
    workers = {member_id: TaskTaker(process_id, once[member_id]) for member_id, process_id in processes.items()}
    again = assign_tasks(workers, tasks_of(counts), STATEFUL, replicas)
    assert {name: one.active for name, one in again.items()} == {name: one.active for name, one in once.items()}


@given(processes_by_member, counts_by_subtopology)
def test_no_more_active_tasks_move_than_must(processes: dict[str, str], counts: dict[str, int]) -> None:
    tasks = tasks_of(counts)
    workers = {member_id: TaskTaker(process_id) for member_id, process_id in processes.items()}
    before = assign_tasks(workers, tasks, STATEFUL, 0)
    joined = {member_id: TaskTaker(process_id, before[member_id]) for member_id, process_id in processes.items()}
    after = assign_tasks({**joined, "new": TaskTaker("p9")}, tasks, STATEFUL, 0)
    moved = sum(len(before[member_id].active - after[member_id].active) for member_id in processes)
    assert moved == len(after["new"].active)


def test_a_task_goes_where_its_standby_was() -> None:
    tasks = [StreamsTask("0", at) for at in range(6)]
    workers = {f"m{at}": TaskTaker(f"p{at}") for at in range(3)}
    before = assign_tasks(workers, tasks, STATEFUL, 1)
    left = {name: TaskTaker(worker.process_id, before[name]) for name, worker in workers.items() if name != "m0"}
    after = assign_tasks(left, tasks, STATEFUL, 1)
    for task in before["m0"].active:
        (had,) = (name for name in left if task in before[name].standby)
        assert task in after[had].active


def test_standbys_are_in_other_racks_if_there_are_any() -> None:
    tasks = [StreamsTask("0", at) for at in range(4)]
    racks = {"m1": "a", "m2": "a", "m3": "b", "m4": "b"}
    workers = {name: TaskTaker(name, tags=(("rack", rack),)) for name, rack in racks.items()}
    assigned = assign_tasks(workers, tasks, STATEFUL, 1)
    for task in tasks:
        (owner,) = (name for name in racks if task in assigned[name].active)
        (standby,) = (name for name in racks if task in assigned[name].standby)
        assert racks[owner] != racks[standby]


def test_members_of_one_process_have_no_standbys() -> None:
    workers = {"m1": TaskTaker("p"), "m2": TaskTaker("p")}
    assigned = assign_tasks(workers, [StreamsTask("0", 0), StreamsTask("0", 1)], STATEFUL, 1)
    assert [len(one.active) for one in assigned.values()] == [1, 1]
    assert not any(one.standby for one in assigned.values())


def test_nobody_is_nothing() -> None:
    assert assign_tasks({}, [StreamsTask("0", 0)], STATEFUL, 1) == {}
