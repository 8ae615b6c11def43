"""KernelSHAP: Shapley values as the linear game nearest to the sampled coalitions.

Lundberg, Lee, "A unified approach to interpreting model predictions", NeurIPS 2017: among all phi
that sum to u(N) - u(empty) they minimise the sum over S of (u(S) - u(empty) - phi(S))^2 with weight
1 / (C(m, s) s (m - s)). Coalitions are sampled with their complements (Covert, Lee, "Improving
KernelSHAP", AISTATS 2021), which leaves the odd part v(S) = (u(S) - u(N - S)) / 2 to be fitted.

Three things lower its error, measured in experiments.estimators: a size has a fixed number of
pairs, without replacement (`sizes`), in proportion to 1 / sqrt(s (m - s)), between KernelSHAP's
1 / (s (m - s)) and leverage scores (Musco, Witter, ICLR 2025); and an odd polynomial of the size is
fitted along. Over all coalitions it would be orthogonal to phi; over a sample it takes away what
depends on the size alone.

A regression is a ratio of means, and so biased where players' marginal contributions depend on the
size of the coalition that they join, as they do where utility saturates. Its matrix is known over
all coalitions, since x x' has the same mean but for a factor in every size: c (I - 1 1'/m). With
phi_(-k) fitted without pair k, the residual of pair k is independent of it, and

    sum_k omega_k phi_(-k) + sum_k w_k x_k (y_k - x_k' phi_(-k)) / c

has no bias when pairs are drawn independently. This is the unbiased KernelSHAP of Covert and Lee
with a regression as control variate. Leaving a pair out takes no second fit: it divides a
residual by 1 - leverage.
"""

import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Key

from trip_jax.shapley.estimators import ESTIMATORS
from trip_jax.shapley.few_draws import standard_error
from trip_jax.shapley.rows import in_pairs
from trip_jax.shapley.shapes import Coalitions, Players, Utilities, ValuesAndErrors
from trip_jax.shapley.sizes import draw_sizes, plan, successors

POWERS = (1, 3, 5)

SPARE_PAIRS = 9
"""Pairs drawn beyond the number of coefficients; with fewer the regression may be singular."""


class KernelSHAP:
    """The KernelSHAP estimator: regression on pairs of complementary coalitions."""

    def minimum(self, m: int) -> int:
        coefficients = m - 1 + len(POWERS)
        return max(4 * m, 2 * (coefficients + SPARE_PAIRS) + 2)

    def draw(self, key: Key[Array, ""], m: Players, *, rows: int, slots: int) -> Coalitions:
        (drawn,) = draw_sizes(key, m, rows // 2 - 1, slots=slots, arcsine=True, sides=1)
        return in_pairs(drawn, drawn, m, rows)

    def estimate(self, masks: Coalitions, utilities: Utilities, m: Players) -> ValuesAndErrors:
        even = len(masks) // 2 * 2
        return estimate_by_regression(masks[:even], utilities[:even], m)


# It has the least error at equal budget, and no bias to speak of, by experiments.estimators.
for name in ("auto", "kernelshap"):
    ESTIMATORS(name)(KernelSHAP())


def estimate_by_regression(masks: Coalitions, utilities: Utilities, m: Players) -> ValuesAndErrors:
    """Shapley values by weighted regression; arguments as in `sampling.estimate`."""
    pairs, slots = len(masks) // 2 - 1, masks.shape[1]
    counts, population = plan(m, pairs, slots=slots, arcsine=True)
    real = jnp.arange(slots) < m
    gain = utilities[1] - utilities[0]
    inside, odd = masks[2::2], (utilities[2::2] - utilities[3::2]) / 2
    size = inside.sum(axis=1)
    kernel = jnp.where(2 * size == m, 0.5, 1) / jnp.maximum(size * (m - size), 1)
    weight = jnp.where(size > 0, kernel / jnp.maximum(counts[size], 1), 0)
    weight = (weight / jnp.maximum(weight.sum(), 1e-30))[:, None]
    left_out = (1 - counts / jnp.maximum(population, 1))[size]

    # Deviations from an equal split of the gain, against deviations from equal membership.
    x = everywhere = jnp.where(real, inside - size[:, None] / m, 0)
    y = odd - gain * (size / m - 0.5)[:, None]
    basis: list[Array] = []
    for power in POWERS:
        column = (1 - 2 * size / m)[:, None] ** power
        rest = column
        for q in basis:
            rest -= q * (weight * q * rest).sum()
        norm, whole = (weight * rest**2).sum(), (weight * column**2).sum()
        new = norm > 1e-6 * whole  # few sizes leave less than three powers apart
        basis.append(jnp.where(new, rest / jnp.sqrt(jnp.where(new, norm, 1)), 0))
    for q in basis:
        x -= q * (weight * q * x).sum(axis=0)
        y -= q * (weight * q * y).sum(axis=0)

    # Rows of x sum to zero: ones in the matrix make it regular and leave the solution alone.
    alike = (real[:, None] & real) / m
    factor = cho_factor(x.T @ (weight * x) + alike + jnp.diag(~real))
    influence = x @ cho_solve(factor, jnp.eye(slots))  # [pairs, slots]
    fitted = influence.T @ (weight * y)

    # What the residuals of pairs left out one by one add; sizes that are enumerated add nothing.
    residual = weight * (y - x @ fitted)
    leverage = weight * ((influence * x).sum(axis=1, keepdims=True) + sum(q**2 for q in basis))
    without = residual / jnp.maximum(1 - leverage, 0.05)
    square = weight * (everywhere**2).sum(axis=1, keepdims=True)
    trace = jnp.maximum(square.sum(), 1e-30)  # c (m - 1)
    known = jnp.maximum(m - 1, 1) / trace * everywhere  # x / c
    correction = (known - square / trace * influence).T @ (left_out[:, None] * (without - residual))
    values = jnp.where(real[:, None], gain / m + fitted + correction, 0)

    # Of the sum over pairs, for sampling without replacement.
    follower, alone = successors(counts, size)
    both = known * known[follower], jnp.where(alone, 0, without * without[follower])
    variance = (known**2).T @ (left_out[:, None] * without**2)
    variance -= both[0].T @ (left_out[:, None] * both[1])

    # Satterthwaite's degrees of freedom, as if residuals were alike before they are weighted, of
    # which the regression takes as many as it has coefficients.
    part = left_out[:, None] * weight * square
    freedom = part.sum() ** 2 / jnp.maximum((part**2).sum(), 1e-30)
    freedom *= 1 - leverage.sum() / jnp.maximum((size > 0).sum(), 1)
    return values, standard_error(variance, jnp.maximum(freedom, 0), m)
