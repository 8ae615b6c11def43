from trip_node.deployment.ledger import *
