"""Register our tool and skill in quill."""

import json
import os

from brainsurgeon.agents.agent import NAME, SKILL, Install

from .home import home_directory


class QuillInstall(Install):
    title = "Quill"
    command = "quill"
    keys = ("tools", NAME)
    parsed, directory = staticmethod(json.loads), staticmethod(home_directory)
    skill = f"deploy/claude-code/{SKILL}"

    def configuration(self):
        return os.path.join(home_directory(), "quill.json")
