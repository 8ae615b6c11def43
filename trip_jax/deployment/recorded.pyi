from trip_node.deployment.recorded import *
