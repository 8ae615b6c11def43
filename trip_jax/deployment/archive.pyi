from trip_node.deployment.archive import *
