"""A virtual environment for each framework, since what they depend on is not compatible.

A framework's file says in a block at its top, as scripts do by PEP 723, which Python and which
packages it needs. A file without the block runs in this interpreter.
"""

import re
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

FRAMEWORKS = Path(__file__).parent
ENVIRONMENTS = Path("outputs/frameworks")

BLOCK = re.compile(r"^# /// script\n((?:# .*\n)+)# ///$", re.MULTILINE)


class NotInstalled(Exception):
    """Why a framework can't be had here."""


def environment(script: Path, folder: Path) -> Path:
    """The interpreter that runs a script, installed on the first call.

    Args:
        folder: where environments are kept.

    Raises:
        NotInstalled: no interpreter, or packages that can't be installed.
    """
    block = BLOCK.search(script.read_text())
    if not block:
        return Path(sys.executable)
    wanted = tomllib.loads(block[1].replace("# ", "", 1).replace("\n# ", "\n"))
    home = folder.absolute() / script.stem
    python, installed = home / "bin" / "python", home / "installed.txt"
    packages = "\n".join(wanted["dependencies"])
    if not installed.exists() or installed.read_text() != packages:
        interpreter = _interpreter(int(wanted["requires-python"].removeprefix(">=3.")))
        shutil.rmtree(home, ignore_errors=True)
        _run([interpreter, "-m", "venv", str(home)])
        pip = [str(python), "-m", "pip", "install", "--quiet"]
        if find_spec("uv"):  # links what it has downloaded before, PyTorch for one
            pip = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", str(python)]
        _run([*pip, *wanted["dependencies"]])
        installed.write_text(packages)
    return python


def _interpreter(least: int) -> str:
    """This one or else, of Python 3.`least` and later, the first on the PATH that runs."""
    if sys.version_info >= (3, least):
        return sys.executable
    for minor in range(least, least + 10):
        found = shutil.which(f"python3.{minor}")
        if found and not subprocess.run([found, "-c", ""], capture_output=True).returncode:
            return found
    raise NotInstalled(f"it needs Python 3.{least} or later, and none is on the PATH")


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["no reason told"]
        raise NotInstalled(f"{' '.join(command[:4])} ended in: {said[-1].strip()}")
