"""Text without sense: shuffles of a fixed list of short, common words, each one token in most vocabularies.

A text of n words always holds the same words, in another order: so texts of equal length have equal token counts,
and a text of whole rounds of the list costs a tokenizer exactly its mean.
"""

from __future__ import annotations

from random import Random

from swarmtui.prompts.sampling import shuffled

_THREE = """
act age air arm art bag bed box boy car cat cup day dog ear egg end eye far fly hat ice job key leg map oil red sea
sky sun top
"""

_FOUR = """
area baby back ball bank base bird blue boat body book busy call card case city club coat cold cook copy cost dark date
desk door east edge face farm film fire fish five flag food game gift gold hair half hand head hill home hour idea iron
join king lake lamp land life line list mail milk moon move name park road shop
"""

_FIVE = """
about after beach black board bread build chair clean clock dance dream early earth field floor fruit glass grass green
heart horse house light lunch money music night north paper river stone
"""

WORDS = tuple(
    word
    for group in zip(_THREE.split(), _FOUR.split()[::2], _FIVE.split(), _FOUR.split()[1::2], strict=True)
    for word in group
)
"""Every four in a row have sixteen letters, so that part of a round costs nearly its share of the round."""


def senseless(count: int, rng: Random) -> str:
    rounds, rest = divmod(count, len(WORDS))
    return " ".join(shuffled(WORDS * rounds + WORDS[:rest], rng))
