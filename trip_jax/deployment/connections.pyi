from trip_node.deployment.connections import *
