"""Decide how often a worker looks for arrived chunks, so that one wake-up serves many streams."""

from __future__ import annotations

# With fewer chunks per second, a wake-up for each of them costs little.
_MIN_RATE = 2_000

# The longest period, as a share of the gap between two chunks of a stream, and in seconds. A stream that ends sends its
# next request half a period later on average, so a period must also be short compared with a response.
_GAP_SHARE = 1 / 6
_MAX_S = 0.003

# More coalesced chunks than this share mean that chunks arrive closer together than the average gap.
_MAX_COALESCED = 0.0005

_SHORTER, _LONGER = 0.5, 0.1


class PollPeriod:
    """Arrivals are stamped by the kernel, so reading later loses no accuracy until a stream gets a second chunk."""

    def __init__(self) -> None:
        self._share = 1.0

    def next_s(self, streams: int, chunks: int, coalesced: int, elapsed_s: float) -> float:
        """Return the period, given the streams in flight, and the chunks in the time since the last call.

        It is 0, to read immediately, if few chunks arrive; it shrinks while chunks coalesce.
        """
        if coalesced > _MAX_COALESCED * chunks:
            self._share *= _SHORTER
        else:
            self._share = min(1.0, self._share + _LONGER)
        if chunks < _MIN_RATE * elapsed_s:
            return 0.0
        return min(_MAX_S, streams * elapsed_s / chunks * _GAP_SHARE) * self._share
