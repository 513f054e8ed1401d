"""Checkers that find anomalies in a history (see `histories.py`): violations of the guarantees under any fault.

    anomalies = check(History.read(folder))
    assert not anomalies, report(anomalies)

Each check is a pure function of the history, numbered like its anomaly in `docs/testing.md`. There are no false
positives: an operation with an unknown outcome may have happened or not, and an anomaly is reported only if it is one
in both cases. A check can only use what the history contains, so let a consumer read every partition from its start,
and record these notes:

- `healed`: from here on there are no faults and no sends, and new consumers read everything from start to end. Without
  it, a value that was sent and not read may just not have been read yet;
- `power cut`: from here on only synced data is there;
- `no acks` and `acks again`: between them nothing can be acknowledged, since no disk can sync.
"""

from headrace.testing.checkers.checks import CHECKS, Anomaly, check, report
from headrace.testing.checkers.facts import ACKS_AGAIN, HEALED, NO_ACKS, POWER_CUT

__all__ = ["ACKS_AGAIN", "CHECKS", "HEALED", "NO_ACKS", "POWER_CUT", "Anomaly", "check", "report"]
