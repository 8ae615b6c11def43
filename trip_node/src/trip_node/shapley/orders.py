"""What random orders of the players tell: arrays of JAX or of NumPy alike.

An order of m players takes m - 1 coalitions besides the empty and the grand one; what is left of
the rows after the last whole order is not used. The prefixes of a reversed order are the
complements of the prefixes, so its marginal contributions, averaged with those of the order, are
those of the order in the game's odd part v(S) = (u(S) - u(N - S)) / 2.
"""

from typing import Any

from trip_node.shapley.few_draws import standard_error
from trip_node.shapley.rows import after_ends, in_pairs

LEAST_ORDERS = 5
"""The fewest orders from which a standard error can be estimated."""


def least_rows(m: int, *, reverse: bool) -> int:
    """The fewest coalitions from which m players' values and errors can be estimated."""
    return (1 + reverse) * LEAST_ORDERS * (m - 1) + 2


def n_prefixes(rows: int, *, reverse: bool) -> int:
    """The prefixes of orders among `rows` coalitions, without the empty and the grand one."""
    return rows // 2 - 1 if reverse else rows - 2


def coalitions(rank: Any, m: Any, rows: int, *, reverse: bool) -> Any:
    """The prefixes of one order after another, each with its complement where `reverse`.

    Args:
        rank: [n_prefixes(rows), slots] each slot's rank from 0, in as many orders or more than
            are used.

    Returns:
        bool [rows, slots]; rows after the last whole order are empty, or empty and full.
    """
    xp, slots = rank.__array_namespace__(), rank.shape[1]
    order, position, used = _layout(xp, m, n_prefixes(rows, reverse=reverse))
    prefixes = (rank[order] <= position[:, None]) & used[:, None] & (xp.arange(slots) < m)
    return in_pairs(prefixes, prefixes, m, rows) if reverse else after_ends(prefixes, m)


def estimate(masks: Any, utilities: Any, m: Any, *, reverse: bool) -> tuple[Any, Any]:
    """Mean marginal contributions and their standard error over the orders.

    Args:
        masks: the coalitions that `coalitions` lists.
        utilities: [rows, U].

    Returns:
        values and errors [slots, U].
    """
    if not reverse:
        return _from_prefixes(masks[2:], utilities[2:], utilities[0], utilities[1], m)
    even = len(masks) // 2 * 2
    odd = (utilities[0:even:2] - utilities[1:even:2]) / 2
    return _from_prefixes(masks[2:even:2], odd[1:], odd[0], -odd[0], m)


def _from_prefixes(
    prefixes: Any, utilities: Any, empty: Any, grand: Any, m: Any
) -> tuple[Any, Any]:
    xp, (count, slots) = utilities.__array_namespace__(), prefixes.shape
    _, position, used = _layout(xp, m, count)
    first, last = (position == 0)[:, None], (used & (position == m - 2))[:, None]
    before = xp.where(first, empty, xp.roll(utilities, 1, axis=0))
    joins = prefixes & ~xp.where(first, False, xp.roll(prefixes, 1, axis=0)) & used[:, None]
    joins_last = ~prefixes & last & (xp.arange(slots) < m)
    n_orders = xp.maximum(used.sum() // xp.maximum(m - 1, 1), 1)

    def total(joins: Any, marginal: Any) -> Any:
        return joins.astype(marginal.dtype).T @ marginal

    def residual(joins: Any, marginal: Any) -> Any:
        return marginal - joins.astype(marginal.dtype) @ values

    marginal, marginal_last = utilities - before, grand - utilities
    values = (total(joins, marginal) + total(joins_last, marginal_last)) / n_orders
    square = total(joins, residual(joins, marginal) ** 2) + total(
        joins_last, residual(joins_last, marginal_last) ** 2
    )
    freedom = xp.maximum(n_orders - 1, 1).astype(square.dtype)
    variance = square / freedom / n_orders
    return values, standard_error(variance, freedom, m)


def _layout(xp: Any, m: Any, count: int) -> tuple[Any, Any, Any]:
    """Each row's order, its position in it from 0, and whether that order is whole."""
    steps = xp.maximum(m - 1, 1)
    row = xp.arange(count)
    return row // steps, row % steps, row < count // steps * steps
