"""One run of one seed: clusters are started, disturbed by faults and healed, and all results of clients are checked."""

import logging
import traceback
from dataclasses import dataclass, field

from headrace.testing.sim.checks import Checks
from headrace.testing.sim.course import TOPIC, Course, Scenario
from headrace.testing.sim.linked import LinkedCourse
from headrace.testing.sim.world import World

_RUN_LIMIT_S = 1800.0


@dataclass(slots=True)
class SimOutcome:
    seed: int
    scenario: Scenario
    counts: dict[str, int] = field(default_factory=dict)
    virtual_s: float = 0.0
    events: int = 0
    digest: int = 0
    failure: str | None = None
    trace: str = ""


class SeedFailed(AssertionError):
    """A run has failed; the message has the seed, the violation, and the end of the trace."""


def run_seed(
    seed: int, *, scenario: Scenario | None = None, keep_trace: bool = False, linked: bool = False
) -> SimOutcome:
    """Run a seed, of one cluster or of two with a link; a failure is in the outcome."""
    scenario = scenario or Scenario.of_seed(seed)
    world = World(seed)
    outcome = SimOutcome(seed, scenario)
    logger = logging.getLogger("headrace")
    was = logger.level, logger.propagate
    logger.addHandler(world.trace)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    course = LinkedCourse(world, scenario) if linked else Course(world, Checks([TOPIC]), scenario)
    try:
        world.run(course.driver, course.run(), limit_s=_RUN_LIMIT_S)
    except AssertionError as error:
        outcome.failure = f"{type(error).__name__}: {error}"
        world.trace.note("-", "%s", "".join(traceback.format_exception(error)[-30:]))
        course.describe()
    finally:
        world.close()
        logger.removeHandler(world.trace)
        logger.level, logger.propagate = was
    if outcome.failure is None and world.trace.alarms:
        outcome.failure = f"an unexpected error was logged: {world.trace.alarms[0]}"
    outcome.counts, outcome.virtual_s, outcome.events = course.counts, world.now_s, world.events
    outcome.digest = world.trace.digest
    if outcome.failure is not None or keep_trace:
        outcome.trace = world.trace.text()
    return outcome


def check_seed(seed: int, *, linked: bool = False) -> SimOutcome:
    """Run a seed; raises `SeedFailed`."""
    outcome = run_seed(seed, linked=linked)
    if outcome.failure is not None:
        raise SeedFailed(
            f"seed {seed} failed after {outcome.virtual_s:.3f} s of virtual time\n{outcome.scenario}\n"
            f"{outcome.trace}\nseed {seed}: {outcome.failure}\n"
            f"again: python -m headrace.testing.sim --first-seed {seed} --seeds 1{' --linked' if linked else ''}"
        )
    return outcome
