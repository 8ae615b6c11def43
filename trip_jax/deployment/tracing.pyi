from trip_node.deployment.tracing import *
