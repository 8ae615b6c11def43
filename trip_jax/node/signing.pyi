from trip_node.node.signing import *
