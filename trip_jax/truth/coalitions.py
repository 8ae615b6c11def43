"""Which coalitions are executed again: all, drawn ones, or the smallest and the largest."""

from trip_jax.protocol.contributions import METHODS
from trip_jax.protocol.methods.from_models import Replay
from trip_jax.settings.declared import integer
from trip_jax.settings.errors import InvalidSetting
from trip_jax.shapley.borders import LEAST_BORDERS, n_border_coalitions
from trip_jax.shapley.sampling import require_budget

SAMPLED_BY = "kernelshap"
"""The estimator of sampled truths; it draws coalitions in pairs with their complements."""

MOST = 2**12
"""Coalitions that are executed unless more are allowed."""


def replays() -> tuple[str, ...]:
    """The methods that replay coalitions, by which truths are corrected (`truth.replayed`)."""
    return tuple(name for name in METHODS if issubclass(METHODS[name], Replay))


def require_coalitions(
    n: int,
    max_coalitions: int = MOST,
    samples: int | None = None,
    borders: int | None = None,
    section: str = "",
) -> None:
    """Refuse more executions than are allowed.

    Args:
        max_coalitions: that may be executed.
        samples: how many of the 2^n coalitions are drawn, if not all are executed; whatever
            `max_coalitions` is.
        borders: execute the coalitions of at most so many clients, and those that lack at most so
            many; what sizes between them add is interpolated (`shapley.borders`).
        section: what stands before the names of these settings in messages, such as "truth.".
    """
    integer(f"{section}max_coalitions", max_coalitions)
    if samples is not None and borders is not None:
        raise InvalidSetting(
            f"Either {section}samples or {section}borders chooses coalitions: leave out one of "
            "them."
        )
    if samples is not None and integer(f"{section}samples", samples) < 2**n:
        require_budget(samples, n, SAMPLED_BY, setting=f"{section}samples")
        return
    executed = 2**n if samples is None else 0
    if borders is not None:
        borders = integer(f"{section}borders", borders, LEAST_BORDERS)
        executed = n_border_coalitions(n, borders)
    if executed > max_coalitions:
        way_out = f"set {section}samples to how many are drawn"
        if borders is not None:
            way_out = f"{section}borders"
        raise InvalidSetting(
            f"n_clients={n} has {executed:,} coalitions to execute again, above "
            f"{section}max_coalitions={max_coalitions:,}: lower n_clients or {way_out}."
        )


def refuse_no_effect(corrected: str | None, section: str = "") -> None:
    """Refuse a replay of coalitions that are executed themselves."""
    if corrected is not None:
        raise InvalidSetting(
            f"{section}corrected={corrected} has no effect where all coalitions are executed: "
            f"leave it out, or give {section}samples or {section}borders."
        )


def are_all(n: int, samples: int | None = None, borders: int | None = None) -> bool:
    """Whether what was asked for leaves out none of the 2^n coalitions."""
    if borders is not None:
        return 2 * borders + 1 >= n
    return samples is None or samples >= 2**n
