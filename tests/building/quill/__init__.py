"""quill, a complete small agent that exists only here. A test adds its line to the registry."""

from brainsurgeon.agents.agent import Agent

from .format import Quill
from .home import QuillHome
from .install import QuillInstall
from .presence import QuillPresence

QUILL = Agent(
    Quill(), "Quill", home=QuillHome(), presence=QuillPresence(), install=QuillInstall()
)  # fmt: skip
