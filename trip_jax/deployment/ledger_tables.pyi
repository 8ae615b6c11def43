from trip_node.deployment.ledger_tables import *
