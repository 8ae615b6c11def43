"""Old names of what is in trip_jax.results.scores."""

from trip_jax.settings.renamed import renamed

__getattr__ = renamed(__name__, client_table="trip_jax.results.scores.client_table")
