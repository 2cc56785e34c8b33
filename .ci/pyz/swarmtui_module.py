"""Run a module of an unpacked swarmtui.pyz in a process of its own: python -P swarmtui_module.py MODULE …"""

import runpy
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
