"""Questions with checkable answers, sent between other requests to see whether answers get worse under load."""

from __future__ import annotations

from swarmtui.model.answer_check import AnswerCheck
from swarmtui.model.record import Phase
from swarmtui.model.workload import Message, Task

# Enough for a model that reasons first; the answers themselves are a few words.
_MAX_TOKENS = 512
_BRIEFLY = "Answer with that only, without an explanation."


def _says(*words: str) -> AnswerCheck:
    return AnswerCheck(any=(words,))


def _number(value: int) -> AnswerCheck:
    return AnswerCheck(regex=(rf"(?<![\d.]){value}(?![\d]|\.\d)",))


_QUESTIONS: tuple[tuple[str, AnswerCheck], ...] = (
    ("What is 17 + 26?", _number(43)),
    ("Which city is the capital of France?", _says("Paris")),
    ("What is 9 times 8?", _number(72)),
    ("Which planet is closest to the Sun?", _says("Mercury")),
    ("Repeat this text exactly: amber-lion-42", _says("amber-lion-42")),
    ("How many days does a week have?", _says("7", "seven")),
    ("What is the chemical formula of water?", _says("H2O", "H₂O")),
    ("Which number comes next: 2, 4, 6, 8?", _number(10)),
    ("Which month comes after June?", _says("July")),
    ("What is 100 minus 37?", _number(63)),
    ("What is the opposite of hot?", _says("cold")),
    ("How many sides does a hexagon have?", _says("6", "six")),
    ("Which colour results from mixing blue and yellow paint?", _says("green")),
    ("Which is larger, 91 or 19?", _number(91)),
    ("Translate the German word Hund into English.", _says("dog")),
    ("Which is the largest ocean on Earth?", _says("Pacific")),
    ("What is half of 84?", _number(42)),
    ("Which city is the capital of Japan?", _says("Tokyo")),
    ("Repeat this text exactly: north/7/willow", _says("north/7/willow")),
    ("How many legs does a spider have?", _says("8", "eight")),
)

COUNT = len(_QUESTIONS)


def canary_task(number: int, question: int, phase: Phase) -> Task:
    """Return request `number`, which asks a question; without a nonce, so that greedy answers can be compared."""
    text, check = _QUESTIONS[question % COUNT]
    return Task(
        id=number,
        messages=(Message(role="user", content=f"{text} {_BRIEFLY}"),),
        type=f"canary-{question % COUNT + 1:02}",
        max_tokens=_MAX_TOKENS,
        temperature=0.0,
        check=check,
        phase=phase,
    )
