from trip_node.deployment.ways import *
