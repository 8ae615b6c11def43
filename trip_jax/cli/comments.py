"""The comments of configuration files, which readers of YAML drop: what settings mean."""

import re
from dataclasses import dataclass, field
from pathlib import Path

KEY = re.compile(r"( *)(\w+):(?: [^#]*?)?(?: *# (?P<comment>.*))?")


@dataclass
class Commented:
    """The comments of a file as this project writes them.

    Attributes:
        header: the lines of the comment that the file begins with.
        keys: the comment on the line of each key and those beneath it, by dotted name; "" for none.
    """

    header: list[str] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)


def read_comments(path: Path) -> Commented:
    """The comments of one configuration file, by the setting that each explains."""
    found, parents, name = Commented(), [(-1, "")], ""
    for line in path.read_text().splitlines():
        if key := KEY.fullmatch(line):
            indent = len(key[1])
            parents = [(at, parent) for at, parent in parents if at < indent]
            name = parents[-1][1] + key[2]
            parents.append((indent, f"{name}."))
            found.keys[name] = key["comment"] or ""
        elif line.startswith("#") and not found.keys:
            found.header.append(line.removeprefix("#").removeprefix(" "))
        elif line.startswith(" ") and line.lstrip().startswith("#"):
            found.keys[name] += " " + line.lstrip("# ")
    found.header = [line for line in found.header if not line.startswith("@package")]
    return found
