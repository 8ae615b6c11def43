"""The precision of matrix products in training and evaluation."""

import jax

from trip_jax.settings import choice, require
from trip_jax.settings.errors import InvalidSetting

PRECISIONS = {"float32": "highest", "tensorfloat32": "high", "bfloat16": "BF16_BF16_F32"}
"""The values of the setting `precision`, and what JAX calls them."""


def require_precision(precision: str, device: jax.Device) -> None:
    """Refuse a precision of matrix products that a device does not have.

    Raises:
        InvalidSetting: it computes in float32 alone, as CPUs do here and GPUs before Ampere,
            there is no such precision, or JAX is told to compute in float64 or not to compile.
    """
    for name in ("jax_enable_x64", "jax_disable_jit"):
        on = jax.config.values[name]
        require(not on, f"{name} is on: turn it off with jax.config.update({name!r}, False).")
    choice("precision", precision, tuple(PRECISIONS))
    generation = 0.0 if device.platform == "cpu" else getattr(device, "compute_capability", 8)
    if precision != "float32" and float(generation) < 8:
        raise InvalidSetting(
            f"precision={precision} is not for {device.device_kind}, which computes in float32: "
            "give precision=float32."
        )
