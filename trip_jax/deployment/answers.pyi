from trip_node.deployment.answers import *
