from trip_node.deployment.table import *
