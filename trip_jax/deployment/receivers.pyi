from trip_node.deployment.receivers import *
