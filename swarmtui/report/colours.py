"""The colours of screens, reports and charts: one hue for one quantity, with a ramp from little to much of it.

Colour is never alone: whatever has one also has a word or a sign.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

Hue = Literal["throughput", "latency", "queue", "energy", "good", "bad"]
HUES: tuple[Hue, ...] = get_args(Hue)
STEPS = 8


class ColourTable(NamedTuple):
    """The colours of a dark or a light page; `ramps` and `ramps_256` have STEPS colours for each hue.

    The numbers of `ramps_256` are those of terminals with 256 colours.
    """

    background: str
    surface: str
    text: str
    dim: str
    frame: str
    hues: dict[Hue, str]
    ramps: dict[Hue, tuple[str, ...]]
    ramps_256: dict[Hue, tuple[int, ...]]


def _ramp(colours: str) -> tuple[str, ...]:
    return tuple(f"#{colour}" for colour in colours.split())


DARK = ColourTable(
    "#12151a", "#1b1f26", "#d8dde4", "#939ca8", "#3c434d",
    {
        "throughput": "#58a6ff", "latency": "#ff9f43", "queue": "#e6c84a", "energy": "#bd93f9", "good": "#3ec9b0",
        "bad": "#ff7a72",
    },
    {
        "throughput": _ramp("123963 1f4d81 2d63a0 3c7ac0 4b91e1 5ea9ff 85c3ff aadcff"),
        "latency": _ramp("532d05 6e3f0e 8b5219 a86524 c77a2f e68f3a ffa650 ffc482"),
        "queue": _ramp("42370a 594c13 71611d 8a7726 a48e30 bfa53b dabd45 f2d76b"),
        "energy": _ramp("402c5a 563f76 6d5194 8565b2 9e79d2 b78ef2 ceaaff e4c8ff"),
        "good": _ramp("004238 05594c 137162 208a78 2ca48f 39bea6 63d6bf 94ebd8"),
        "bad": _ramp("5e211f 7b312e 9a423d b9534e da665f fc7870 ff9990 ffbbb2"),
    },
    {
        "throughput": (24, 25, 26, 32, 33, 75, 117, 153),
        "latency": (94, 130, 166, 172, 208, 214, 215, 223),
        "queue": (58, 94, 136, 178, 220, 221, 227, 228),
        "energy": (54, 91, 97, 98, 134, 141, 183, 189),
        "good": (23, 30, 37, 43, 79, 86, 122, 158),
        "bad": (88, 124, 131, 167, 203, 210, 217, 224),
    },
)  # fmt: skip
LIGHT = ColourTable(
    "#fafaf8", "#eeeff0", "#1f242a", "#57606a", "#c4c9cf",
    {
        "throughput": "#0a5cb8", "latency": "#a84a00", "queue": "#766000", "energy": "#7440bf", "good": "#0b7063",
        "bad": "#b4232c",
    },
    {
        "throughput": _ramp("c6e0ff acc6e9 8cacd8 6793ce 4179c4 115eb9 004798 003177"),
        "latency": _ramp("fbd5c2 e0bba8 d29c81 c37e59 b35e2e 9c4300 7d2f00 5f1c00"),
        "queue": _ramp("e6dec4 cbc4aa b4aa88 9f9062 8a773a 755f00 5c4900 443300"),
        "energy": _ramp("e3d5ff c8bbea b19edc 9b7fd3 865fc9 713ebb 592998 421577"),
        "good": _ramp("cae5df b0cac5 90b2ab 6b9c93 45867b 0f7164 00584d 004137"),
        "bad": _ramp("ffcfca eab4b0 dc948f d0726d c24d4b b0212a 8e091a 6d0009"),
    },
    {
        "throughput": (153, 110, 74, 68, 32, 26, 25, 18),
        "latency": (223, 216, 209, 173, 166, 130, 94, 52),
        "queue": (187, 186, 179, 143, 136, 100, 94, 58),
        "energy": (189, 183, 147, 141, 98, 97, 55, 54),
        "good": (152, 116, 79, 73, 36, 30, 29, 23),
        "bad": (224, 217, 210, 203, 167, 124, 88, 52),
    },
)  # fmt: skip


def shade(hue: Hue, share: float) -> str:
    """Return the style name of the step of a ramp for a share from 0 to 1: `throughput0` to `throughput7`."""
    return f"{hue}{min(STEPS - 1, max(0, int(share * STEPS)))}"
