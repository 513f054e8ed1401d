"""Which payments are suspicious, card by card.

- `burst`: the fourth payment, or a later one, within a minute
- `amount`: more than ten times the card's mean so far, after at least five payments
- `travel`: another country than the payment before, less than half an hour ago
"""

from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

BURST_S, BURST_PAYMENTS = 60, 4
TIMES_MEAN, PAYMENTS_FOR_MEAN = 10, 5
TRAVEL_S = 30 * 60

_STATE = "count LONG, total DOUBLE, recent ARRAY<DOUBLE>, country STRING"


class Card(StatefulProcessor):
    """What is remembered of a card: how many payments, their sum, the times of the last ones, the last country."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._memory = handle.getValueState("memory", _STATE)

    def handleInputRows(self, key: tuple[str], rows: Iterable[pd.DataFrame], timers: Any) -> Iterator[pd.DataFrame]:
        count, total, recent, country = self._memory.get() if self._memory.exists() else (0, 0.0, [], None)
        found = []
        # The payments of a batch come in any order, and the rules are about time.
        for payment in pd.concat(list(rows)).sort_values(["at", "id"]).itertuples():
            at = payment.at.timestamp()
            reasons = []
            recent = [each for each in recent if at - each < TRAVEL_S]
            if sum(at - each < BURST_S for each in recent) >= BURST_PAYMENTS - 1:
                reasons.append("burst")
            if count >= PAYMENTS_FOR_MEAN and payment.amount > TIMES_MEAN * total / count:
                reasons.append("amount")
            if recent and country != payment.country:
                reasons.append("travel")
            found += [(payment.id, key[0], payment.amount, payment.country, payment.at, each) for each in reasons]
            count, total, country = count + 1, total + payment.amount, payment.country
            recent = [*recent, at]
        self._memory.update((count, total, recent, country))
        yield pd.DataFrame(found, columns=["id", "card", "amount", "country", "at", "reason"])

    def close(self) -> None:
        pass


def suspicious(source: DataFrame) -> DataFrame:
    payments = source.select("id", "card", "amount", "country", "at")
    return payments.groupBy("card").transformWithStateInPandas(
        statefulProcessor=Card(),
        outputStructType="id STRING, card STRING, amount DOUBLE, country STRING, at TIMESTAMP, reason STRING",
        outputMode="Append",
        timeMode="None",
    )
