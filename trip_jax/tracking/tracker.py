"""The interface of trackers, and the names that the setting `track` may take.

A tracker of one's own is any class with the methods of `Tracker`. It is added before the run, by a
script that then calls `trip_jax.run.main()` or, without a command line, `trip_jax.runs.launch.run`:

    @TRACKERS("printed")
    class Printed:
        def __init__(self, folder):
            pass

        def start(self, title, settings, done):
            print(title)

        def round(self, t, numbers):
            print(t, numbers["accuracy_mean"])

        def end(self, summary):
            print(summary["status"])

    run(Config(track="printed"), Path("outputs/mine"))
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from trip_jax.settings import Registry
from trip_jax.settings.errors import InvalidSetting


class Tracker(Protocol):
    """A tracker, which records a run while it goes on; it is made before any work is done.

    Where a method fails, the run goes on without the tracker, whose method `close()`, if it has
    one, is then called to let go of what is open, and may fail, too. Of several processes that
    share a run, the first alone has one.
    """

    def start(self, title: str, settings: Mapping[str, Any], done: int) -> None:
        """The run begins, or goes on.

        Args:
            title: a sentence that says what is run.
            settings: by their names on the command line.
            done: rounds that an earlier part of the run has finished; 0 if it starts afresh.
        """

    def round(self, t: int, numbers: Mapping[str, float]) -> None:
        """Report the numbers of a round that is over.

        Args:
            t: its number, from 1, which goes on from `done`. A round that an earlier part lost may
                come again.
            numbers: what rounds.csv says of it, by column.
        """

    def end(self, summary: Mapping[str, Any]) -> str | None:
        """The run is over, or as far as it got.

        Args:
            summary: what summary.json says, the status "finished", "interrupted" or "stopped" (a
                model diverged) included; nothing but the status "failed" and the message where
                not one round is kept.

        Returns:
            a sentence that says where to look, to be printed.
        """


TRACKERS: Registry[Callable[[Path], Tracker]] = Registry("track")
"""`(folder)` -> `Tracker`; the folder is the run's directory, outside of which none writes."""


@TRACKERS("none")
class Untracked:
    """The tracker that reports to nobody (track=none)."""

    def __init__(self, folder: Path):
        pass

    def start(self, title: str, settings: Mapping[str, Any], done: int) -> None:
        pass

    def round(self, t: int, numbers: Mapping[str, float]) -> None:
        pass

    def end(self, summary: Mapping[str, Any]) -> None:
        pass


def package(name: str, extra: str) -> Any:
    """Import the package of a tracker, or say how to install it.

    Args:
        name: the name of the module to import.
        extra: the extra of trip-jax that installs it.

    Raises:
        InvalidSetting: it is not installed, or damaged.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise InvalidSetting(
            f"track={extra} needs a package that can't be imported ({error}): "
            f"install trip_jax with the extra {extra}, as in pip install '.[{extra}]'."
        ) from error
