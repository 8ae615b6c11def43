from trip_node.node.messages import *
