"""Old names of what is in trip_jax.results.plots."""

from trip_jax.settings.renamed import renamed

__getattr__ = renamed(__name__, Plots="trip_jax.results.plots.Plots")
