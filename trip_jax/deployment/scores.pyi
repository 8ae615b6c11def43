from trip_node.deployment.scores import *
