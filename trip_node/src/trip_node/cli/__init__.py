"""The command lines of nodes and coordinator, behind the command `trip-node`."""
