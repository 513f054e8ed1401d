"""Finds in a history (see `histories.py`) what a queue must never do, whatever was done to it.

    anomalies = check(History.read(folder))
    assert not anomalies, report(anomalies)

Each check is a pure function of the history and has the number that the anomaly has in `docs/testing.md`. None of them
guesses: what is unknown may have happened or not, and whatever is found could not have been either way. What a history
does not tell cannot be found, so let somebody read every partition from its start, and mark these notes:

- `healed`: no more faults from here on, nothing more is sent, and readers that come after it read everything from the
  start to the end. Without it, what was sent and not read may only not have been read yet;
- `power cut`: from here on only what was synced is there;
- `no acks` and `acks again`: between them nothing can be acknowledged, since no disk can sync.
"""

from headrace.testing.checkers.checks import CHECKS, Anomaly, check, report
from headrace.testing.checkers.facts import ACKS_AGAIN, HEALED, NO_ACKS, POWER_CUT

__all__ = ["ACKS_AGAIN", "CHECKS", "HEALED", "NO_ACKS", "POWER_CUT", "Anomaly", "check", "report"]
