"""More streams than the system allows: said before the run, with what to do."""

from __future__ import annotations

from tests.cli.programs import Place


def test_too_few_open_files_are_explained_before_anything_is_sent(place: Place) -> None:
    words = ("run", "--endpoint", "sim:moe-tp1", "--session-dir", str(place.sessions), "--levels", "1,512")
    told = place.run(*words, "--workers", "1", before=["prlimit", "--nofile=200:200"]).refused(2)
    assert "C=512 needs 576 open files and the limit is 200" in told
    assert "or stay below C=136" in told
    assert not place.sessions.exists()
