"""Count what a session has sent and received since its start, for metrics that only grow."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

from swarmtui.model.client_protocol import TTFT_BOUNDS, Totals
from swarmtui.model.record import CANCELLED, Record
from swarmtui.state.recorded_worker import first_token_s


class TotalCounts:
    def __init__(self) -> None:
        self._requests = self._tokens_in = self._tokens_out = 0
        self._errors: Counter[str] = Counter()
        self._ttft_sum_s = 0.0
        self._ttft_counts = [0] * (len(TTFT_BOUNDS) + 1)

    def add(self, record: Record, *, scheduled: bool) -> None:
        if record.error == CANCELLED:
            return
        self._requests += 1
        if record.error is not None:
            self._errors[record.error] += 1
            return
        self._tokens_in += record.tokens_in or 0
        self._tokens_out += record.tokens_out or 0
        ttft_s = first_token_s(record, scheduled=scheduled)
        if ttft_s is not None:
            self._ttft_sum_s += ttft_s
            self._ttft_counts[bisect_left(TTFT_BOUNDS, ttft_s)] += 1

    def view(self) -> Totals:
        return Totals(
            requests=self._requests,
            errors=dict(self._errors),
            tokens_in=self._tokens_in,
            tokens_out=self._tokens_out,
            ttft_sum_s=self._ttft_sum_s,
            ttft_counts=tuple(self._ttft_counts),
        )
