from trip_node.deployment.service import *
