from trip_node.node.weights import *
