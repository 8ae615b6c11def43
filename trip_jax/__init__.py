"""Who contributed what in decentralised federated learning: TRIP-Shapley in JAX."""
