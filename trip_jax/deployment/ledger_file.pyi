from trip_node.deployment.ledger_file import *
