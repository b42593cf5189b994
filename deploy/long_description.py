"""README as the long description of a release: its links lead to the files of its version."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)(\[[^]]*\])\((?!https?:|#)([^)]+)\)")


class LongDescription(MetadataHookInterface):
    """Adds the field `readme`."""

    def update(self, metadata: dict[str, Any]) -> None:
        source = f"{metadata['urls']['Source']}/{{}}/v{metadata['version']}"
        places = {"!": source.format("raw"), "": source.format("blob")}
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        text = LINK.sub(lambda link: f"{link[1]}{link[2]}({places[link[1]]}/{link[3]})", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
