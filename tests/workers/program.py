"""The program in a process of its own, which ignores the configuration of the machine.

python program.py [WORD]...
"""

import runpy
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parent.parent)
from building import machine

machine.hide_configuration()
del sys.path[0]
runpy.run_module("brainsurgeon", run_name="__main__", alter_sys=True)
