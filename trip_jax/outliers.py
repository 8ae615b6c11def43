"""Theta-IPOD for the coordinator's outlier model p = A v + gamma + noise (She & Owen, 2011).

Every row of A holds a single one, so the problem separates by member j:
min over v_j and gamma of sum_k (p_k - v_j - gamma_k)^2 + lambda |gamma_k|. For fixed v the best
gamma is p - v thresholded at lambda/2 (there is no factor 1/2 before the square), for fixed gamma
the best v_j is the mean of p - gamma: soft thresholding yields Huber's location estimate.
"""

import jax.numpy as jnp
from jax import Array, lax, ops

MAX_ITERATIONS = 10_000
"""Far beyond what convergence takes; bounds a cycle of rounding errors."""


def soft_threshold(x: Array, threshold: float) -> Array:
    return jnp.sign(x) * jnp.maximum(jnp.abs(x) - threshold, 0)


def hard_threshold(x: Array, threshold: float) -> Array:
    return jnp.where(jnp.abs(x) > threshold, x, 0)


def robust_location(
    p: Array, member: Array, real: Array, n: int, *, penalty: float, thresholding: str
) -> Array:
    """The consensus v_j on each member's contribution.

    The soft minimiser is not unique where a member's reports split evenly more than lambda apart;
    which of them is returned then depends on the start, the mean.

    Args:
        p: [A] reported contributions.
        member: [A] int32 the member j that each one is about.
        real: [A] bool, False where padded.
        penalty: lambda.
        thresholding: "soft" (the paper's; starts at the mean) or "hard" (starts at the median).

    Returns:
        v [n], 0 for a member that nobody reports on.
    """
    count = jnp.maximum(ops.segment_sum(real.astype(p.dtype), member, num_segments=n), 1)
    p = jnp.where(real, p, 0)

    def mean(x: Array) -> Array:
        return ops.segment_sum(jnp.where(real, x, 0), member, num_segments=n) / count

    threshold = soft_threshold if thresholding == "soft" else hard_threshold
    start = mean(p) if thresholding == "soft" else _median(p, member, real, n)
    tolerance = 1e-7 * jnp.max(jnp.abs(p), initial=0)

    def unfinished(carry: tuple[Array, Array, Array]) -> Array:
        _, change, iteration = carry
        return (change > tolerance) & (iteration < MAX_ITERATIONS)

    def iterate(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        v, _, iteration = carry
        gamma = threshold(p - v[member], penalty / 2)
        new = mean(p - gamma)
        return new, jnp.max(jnp.abs(new - v)), iteration + 1

    v, _, _ = lax.while_loop(unfinished, iterate, (start, jnp.float32(jnp.inf), jnp.int32(0)))
    return v


def _median(p: Array, member: Array, real: Array, n: int) -> Array:
    """The median of each member's reports, 0 where there is none."""
    segment = jnp.where(real, member, n)
    order = jnp.lexsort((p, segment))
    count = ops.segment_sum(jnp.ones(len(p), int), segment, num_segments=n + 1)[:n]
    first = jnp.cumsum(count) - count
    lower = p[order[first + jnp.maximum(count - 1, 0) // 2]]
    upper = p[order[jnp.minimum(first + count // 2, len(p) - 1)]]
    return jnp.where(count > 0, (lower + upper) / 2, 0)
