from trip_node.deployment.application import *
