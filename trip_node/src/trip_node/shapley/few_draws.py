"""Standard errors where few draws tell them: moderated over players, widened as Student's t is.

An error estimated from few draws has two faults. It is too small where rare coalitions decide and
none was drawn: a player that turns one order in fifty shows no variance in ten. And 1.96 times an
estimated error holds less than 95 %.

The players of a game play in the same coalitions, so each one's variance takes part in the mean
of all, with as many degrees of freedom d0 as a prior has (Smyth, "Linear models and empirical
Bayes methods for assessing differential expression in microarray experiments", 2004, Eqs. 3, 4):

    s~_j^2 = (d0 mean_k s_k^2 + d s_j^2) / (d0 + d),

and (phi_j - true phi_j) / s~_j has d0 + d degrees of freedom. The error is s~_j times the quantile
of Student's t over the normal one, so that 1.96 errors hold 95 % and sums over rounds little more.
As d grows, it becomes s_j.
"""

from typing import Any

PRIOR_FREEDOM = 8
"""d0. Chosen on unanimity, saturating, voting, glove and random games that judge nothing."""

NORMAL = 1.959964  # the 97.5 % quantile


def standard_error(variance: Any, freedom: Any, m: Any) -> Any:
    """Errors of m players, 1.96 of which hold 95 %; zero beyond them.

    Arrays of JAX or of NumPy alike.

    Args:
        variance: each player's own estimate [slots, U].
        freedom: its degrees of freedom d; of each, or the same for all.
    """
    xp = variance.__array_namespace__()
    real = (xp.arange(len(variance)) < m)[:, None]
    variance = xp.where(real, xp.maximum(variance, 0), 0)
    mean = variance.sum(axis=0) / xp.maximum(m, 1)
    total = PRIOR_FREEDOM + freedom
    moderated = (PRIOR_FREEDOM * mean + freedom * variance) / total
    return xp.where(real, xp.sqrt(moderated) * student(total) / NORMAL, 0)


def student(freedom: Any) -> Any:
    """The 97.5 % quantile of Student's t (Abramowitz, Stegun, 26.7.5; to .001 from 4 on)."""
    xp, z = freedom.__array_namespace__(), NORMAL
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    powers = xp.expand_dims(freedom, -1) ** xp.arange(1, len(terms) + 1)
    return z + (xp.asarray(terms) / powers).sum(axis=-1)
