"""Observers: objects that are called while a run goes on."""

import warnings
from collections.abc import Callable
from typing import Any

from trip_jax.learning.memory import PlannedMemory
from trip_jax.simulation.history import Snapshot


class Observer:
    """Hears of a run while it goes on; a subclass overrides what it wants to hear."""

    def on_begun(self) -> None:
        """A configured run begins afresh: nothing is left to refuse but too little memory."""

    def on_start(self, planned: PlannedMemory | None) -> None:
        """Called once before the first round.

        Args:
            planned: the memory that the run takes; None where the compiler does not tell.
        """

    def on_round(self, past: Snapshot) -> bool | None:
        """Hear of a round that is over; a run calls this after each.

        Args:
            past: the run up to here.

        Returns:
            True to end the run here.
        """

    def on_part(self, share: float) -> None:
        """Called when a method that waits for the end has computed this share of its work."""


class _Callbacks(Observer):
    """An observer of up to three functions."""

    def __init__(self, **functions: Callable[..., Any] | None):
        vars(self).update({name: one for name, one in functions.items() if one is not None})


def as_observer(observer: Any, alone: str, **functions: Callable[..., Any] | None) -> Observer:
    """The argument `observer`, or functions as an older version took them, with a warning.

    Args:
        observer: None for none.
        alone: the method that a function in an observer's place stands for.
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
