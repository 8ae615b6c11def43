"""The coordinator where reports come from real federations: as a table, or to a service."""
