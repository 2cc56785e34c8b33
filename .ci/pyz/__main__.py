"""Start swarmtui from swarmtui.pyz: unpack the files for this Python and machine once, then run them.

The archive has a folder for all machines (`any`), one per machine (`x86_64`) and one per Python and machine
(`cp312-x86_64`); `builds` lists the latter, and `build-id` differs between archives. Python 3.6 can read this file, so
that an old Python is told what it lacks.
"""

import os
import sys
from pathlib import Path

ARCHIVE = Path(__file__).resolve().parent
MACHINE = os.uname().machine
BUILD = f"cp{sys.version_info[0]}{sys.version_info[1]}{sys.abiflags}-{MACHINE}"


def read(name):
    return __loader__.get_data(str(ARCHIVE / name)).decode()


def cache_directory():
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path("~/.cache").expanduser()) / "swarmtui" / "pyz"


def unpack(directory):
    """Unpack into a temporary directory and rename it, so that other processes see all files or none."""
    import shutil
    import tempfile
    import zipfile

    directory.parent.mkdir(0o700, parents=True, exist_ok=True)
    temporary = tempfile.mkdtemp(dir=str(directory.parent))
    try:
        with zipfile.ZipFile(str(ARCHIVE)) as archive:
            for member in archive.infolist():
                folder, _, member.filename = member.filename.partition("/")
                if folder in ("any", MACHINE, BUILD):
                    archive.extract(member, temporary)
        try:
            Path(temporary).rename(directory)
        except OSError:
            if not directory.is_dir():  # another process was faster
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def main():
    builds = read("builds").split()
    if BUILD not in builds:
        sys.exit(f"swarmtui: this file does not run on {BUILD}; it is made for {' '.join(builds)}")
    try:
        directory = cache_directory() / f"{read('build-id')}-{BUILD}"
        if not directory.is_dir():
            unpack(directory)
    except (OSError, RuntimeError) as error:  # RuntimeError: the user has no home directory
        sys.exit(f"swarmtui: cannot unpack: {error}; set XDG_CACHE_HOME to a directory that can be written")
    sys.path[0] = str(directory)
    from swarmtui.cli import main as run

    run()


main()
