"""Pages that show runs: one file each, which needs no network and no server."""

from importlib.resources import files

WEB = files("trip_jax.runs.pages") / "web"
"""What pages of runs are made of, beside what all pages share."""
