from trip_node.deployment.result_tables import *
