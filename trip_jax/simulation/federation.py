"""Old names of what is in trip_jax.federation."""

from trip_jax.settings.renamed import renamed

__getattr__ = renamed(
    __name__, Federation="trip_jax.federation.Federation", Settings="trip_jax.federation.Settings"
)
