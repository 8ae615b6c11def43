from trip_node.node.tracing import *
