from trip_node.deployment import *
