"""Data sets, and how their examples are divided among clients."""
