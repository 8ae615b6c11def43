from trip_node.deployment.patience import *
