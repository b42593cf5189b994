"""The program in a process of its own, which ignores the configuration of the machine."""

import runpy
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from building import machine

machine.hide_configuration()
del sys.path[0]
runpy.run_module("brainsurgeon", run_name="__main__", alter_sys=True)
