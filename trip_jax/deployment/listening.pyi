from trip_node.deployment.listening import *
