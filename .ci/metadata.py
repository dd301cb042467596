"""The readme and the addresses of a built package, for hatchling.

Links of README.md lead to files of the repository. An index of packages does not have these files,
so links and pictures become absolute: they lead to the tag of the version. The addresses are those
of ``[tool.conenmf]`` in pyproject.toml; where there is none, the readme stays as it is.
"""

import re
import tomllib
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?!\w+:|#)(?P<target>[^)]+)\)")


class Addresses(MetadataHookInterface):
    """Fills in what pyproject.toml calls dynamic."""

    def update(self, metadata):
        """Set the readme and the addresses."""
        root = Path(self.root)
        own = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]["conenmf"]
        text = (root / "README.md").read_text("utf-8")
        repository = own["repository"].rstrip("/")
        if repository:
            tag = f"v{metadata['version']}"
            text = LINK.sub(lambda link: absolute(link, repository, tag), text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = {"Paper": own["paper"]} | addresses(repository, own["documentation"])


def absolute(link, repository, tag):
    """Return a link of the readme with the address of its file at a tag."""
    kind = "raw" if link["picture"] else "blob"
    return f"{link['picture']}[{link['text']}]({repository}/{kind}/{tag}/{link['target']})"


def addresses(repository, documentation):
    """Return the addresses that an index of packages shows."""
    found = {}
    if documentation:
        found["Documentation"] = documentation
    if repository:
        found["Source"] = repository
        found["Issues"] = f"{repository}/issues"
        found["Changelog"] = f"{repository}/blob/main/CHANGELOG.md"
    return found
