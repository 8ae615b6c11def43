from trip_node.node.names import *
