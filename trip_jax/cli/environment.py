"""Options of JAX, figures and streams that a command sets in its process.

Settings alone decide numbers, so variables of the environment that would are overruled.
"""

import os

import jax

from trip_node.cli import streams

OURS = {
    "jax_debug_infs": False,
    "jax_debug_nans": False,  # liars send NaN, at which it would stop the run
    "jax_default_matmul_precision": None,
    "jax_default_prng_impl": "threefry2x32",
    "jax_disable_jit": False,
    "jax_enable_x64": False,
    "jax_numpy_dtype_promotion": "standard",
    "jax_numpy_rank_promotion": "allow",
    "jax_random_seed_offset": 0,
    "jax_threefry_partitionable": True,
}
"""JAX's options that change results or break programs, and what they are in our processes."""


def settle() -> None:
    """Set the options of JAX, figures and streams that commands need in this process."""
    for name, value in OURS.items():
        if jax.config.values.get(name, value) != value:
            jax.config.update(name, value)
    os.environ["MPLBACKEND"] = "agg"  # figures are files
    streams.settle()
