"""Observers: objects that are called while a run goes on."""

import warnings
from collections.abc import Callable
from typing import Any

from trip_jax.learning.memory import PlannedMemory
from trip_jax.simulation.history import Snapshot


class Observer:
    """Is called while a run goes on; a subclass overrides the methods that it needs."""

    def on_begun(self) -> None:
        """Called when a configured run begins afresh, after all checks but that of its memory."""

    def on_start(self, planned: PlannedMemory | None) -> None:
        """Called once before the first round.

        Args:
            planned: the memory that the run takes; None where the compiler does not tell.
        """

    def on_round(self, past: Snapshot) -> bool | None:
        """Called after every round.

        Args:
            past: the run up to this round.

        Returns:
            True to end the run after this round.
        """

    def on_part(self, share: float) -> None:
        """Called while contributions are computed after the last round, with the finished share."""


class _Callbacks(Observer):
    """An observer of up to three functions."""

    def __init__(self, **functions: Callable[..., Any] | None):
        vars(self).update({name: one for name, one in functions.items() if one is not None})


def as_observer(observer: Any, alone: str, **functions: Callable[..., Any] | None) -> Observer:
    """The argument `observer`, or functions as an older version took them, with a warning.

    Args:
        observer: None for none.
        alone: the method of an observer that a plain function stands for.
        functions: by the names of an observer's methods, None where there is none.
    """
    if callable(observer) and not isinstance(observer, Observer):
        functions[alone], observer = observer, None
    if any(functions.values()):
        warnings.warn(
            f"Functions {', '.join(functions)} are deprecated: give a tj.Observer with methods of "
            "these names.",
            DeprecationWarning,
            stacklevel=3,
        )
        return _Callbacks(**functions)
    return observer or Observer()
