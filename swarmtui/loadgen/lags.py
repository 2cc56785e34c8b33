"""How late the loop is at its work: how long the newest chunk of each look had lain in the kernel."""

from __future__ import annotations

# Of fewer there is no hundredth part.
_LOOKS = 1000


class Lags:
    def __init__(self) -> None:
        self._new: list[int] = []
        self._before: list[int] = []

    def note(self, lag_ns: int) -> None:
        self._new.append(lag_ns)

    def p99_ns(self) -> int:
        """Of all looks since it was last asked, and of earlier ones where those are few; 0 before the first."""
        known = (self._before + self._new)[-max(_LOOKS, len(self._new)) :]
        self._new, self._before = [], known[-_LOOKS:]
        return sorted(known)[len(known) * 99 // 100] if known else 0
