"""Check answers in a process of its own: `python -m swarmtui.sessions.check_answers`.

Standard input has one `CheckedAnswer` after another, each with its length before it; each verdict is a line of standard
output. A check that uses too much processor time ends the process by SIGVTALRM, whatever it is doing.
"""

from __future__ import annotations

import os
import signal
import sys

import msgspec

from swarmtui.analysis.answers import check_answer
from swarmtui.model.answer_check import AnswerCheck

HEADER_BYTES = 4
# Of the processor, not of the clock: on a busy machine a verdict must not depend on other processes.
CHECK_LIMIT_S = 1.0


class CheckedAnswer(msgspec.Struct, frozen=True, array_like=True):
    """An answer and what is expected of it; one that was `cut` ended at its token limit."""

    check: AnswerCheck
    content: str
    reasoning: str
    cut: bool


def main() -> None:
    # Load is being generated at the same time.
    os.nice(10)
    decoder = msgspec.msgpack.Decoder(CheckedAnswer)
    pipe = sys.stdin.buffer
    while header := pipe.read(HEADER_BYTES):
        answer = decoder.decode(pipe.read(int.from_bytes(header, "big")))
        signal.setitimer(signal.ITIMER_VIRTUAL, CHECK_LIMIT_S)
        verdict = check_answer(answer.check, answer.content, answer.reasoning, cut=answer.cut)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        sys.stdout.write(f"{verdict}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
