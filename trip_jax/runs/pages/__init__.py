"""Pages that show runs: one file each, which needs no network and no server."""
