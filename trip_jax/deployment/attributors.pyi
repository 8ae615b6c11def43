from trip_node.deployment.attributors import *
