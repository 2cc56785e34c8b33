"""Power, energy and utilisation of the simulated GPU are consistent."""

from __future__ import annotations

import pytest

from swarmtui.sim.gpu import Cards
from swarmtui.sim.presets import Card

CARD = Card(name="X", memory_gib=24, weights_gib=10, idle_w=20, max_w=320)


def test_energy_is_power_times_time() -> None:
    cards = Cards(CARD, 4, at=100.0)
    cards.work(110.0, 120.0, 4)
    assert cards.read(130.0, 0, 0.0).energy_j == pytest.approx(20 * 20 + 320 * 10)


def test_power_follows_the_batch() -> None:
    def after(batch: int) -> float:
        cards = Cards(CARD, 4, at=0.0)
        cards.work(0.0, 30.0, batch)
        return cards.read(30.0, 0, 0.0).power_w

    assert 20 < after(1) < after(2) < after(4) == pytest.approx(320)
    cards = Cards(CARD, 4, at=0.0)
    cards.work(0.0, 30.0, 4)
    assert cards.read(60.0, 0, 0.0).power_w == pytest.approx(20)


def test_utilisation_is_the_busy_share() -> None:
    cards = Cards(CARD, 4, at=0.0)
    for i in range(1000):
        cards.work(i * 0.02, i * 0.02 + 0.01, 2)
    assert cards.read(20.0, 0, 0.0).utilisation == pytest.approx(0.5, abs=0.01)


def test_current_step_is_counted_once() -> None:
    read_often, read_once = Cards(CARD, 4, at=0.0), Cards(CARD, 4, at=0.0)
    for t in (0.2, 0.5, 0.9):
        read_often.read(t, 4, 0.0)
    for cards in (read_often, read_once):
        cards.work(0.0, 1.0, 4)
    assert read_often.read(1.0, 0, 0.0).energy_j == pytest.approx(read_once.read(1.0, 0, 0.0).energy_j) == 320


def test_memory_follows_the_kv_cache() -> None:
    cards = Cards(CARD, 4, at=0.0)
    empty, full = cards.read(0.0, 0, 0.0), cards.read(0.0, 0, 1.0)
    assert empty.used_mib == pytest.approx(11 * 1024)
    assert full.used_mib == pytest.approx(24 * 0.92 * 1024)
