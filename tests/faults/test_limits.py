"""More streams than the open-file limit allows are refused before the run."""

from __future__ import annotations

from tests.cli.programs import Sandbox


def test_open_file_limit_is_explained_before_the_run(sandbox: Sandbox) -> None:
    words = ("run", "--endpoint", "sim:moe-tp1", "--session-dir", str(sandbox.sessions), "--levels", "1,512")
    error = sandbox.run(*words, "--workers", "1", before=["prlimit", "--nofile=200:200"]).error_line(2)
    assert "C=512 needs 576 open files and the limit is 200" in error
    assert "or use at most C=136" in error
    assert not sandbox.sessions.exists()
    error = sandbox.run(*words, "--workers", "1", before=["prlimit", "--nofile=40:40"]).error_line(2)
    assert "the limit is 40: raise it" in error and "at most" not in error
