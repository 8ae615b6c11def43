from trip_node.deployment.replayed import *
