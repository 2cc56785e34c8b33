"""Run the app with a run whose agents write in scripts that terminals measure differently.

python -m tests.tui.streaming_scripts
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from swarmtui.tui.app import SwarmApp
from tests.tui.frame_builders import RecordingSource, frame

WORDS = (
    "நிகழ்வு மற்றும் பல சொற்கள்",  # Tamil
    "မြန်မာ ဘာသာ စကား",  # Burmese
    "ភាសាខ្មែរ និង អក្សរ",  # Khmer
    "한글 자모 \u1112\u1161\u11ab \u1100\u1176\u11ff",  # Hangul, also of jamo that cannot be composed
    "a\u3164b \u115f\u1160c",  # fillers
    "क्षि त्र ज्ञ",  # Devanagari
    "🇩🇪 flags 很 wide e\u0301",
    "plain",
)
STEPS = 3 * len(WORDS)
END = "all words were written"


def answer(step: int) -> str:
    """The end of an answer: some words more with each step."""
    return " ".join((*WORDS, *WORDS)[step % len(WORDS) :][: 1 + step % 5])


class ScriptSource(RecordingSource):
    """A run in which each step changes the text of its agents; at the end, the notice says so."""

    def open(self, on_change: object) -> None:
        assert callable(on_change)
        self._tasks = [asyncio.get_running_loop().create_task(self._stream(on_change))]

    async def _stream(self, on_change: Callable[[], None]) -> None:
        for step in range(STEPS):
            text = answer(step)
            seen = frame(6, at_s=10.0 + step, words=WORDS[step % len(WORDS)], total=100 + step, text=text)
            note = END if step == STEPS - 1 else text
            self.live.apply(msgspec.structs.replace(seen, note=note, warnings=()))
            on_change()
            await asyncio.sleep(0.03)


if __name__ == "__main__":
    SwarmApp(source=ScriptSource()).run()
