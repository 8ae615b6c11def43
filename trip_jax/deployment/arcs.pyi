from trip_node.deployment.arcs import *
