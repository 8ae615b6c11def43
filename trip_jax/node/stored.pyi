from trip_node.node.stored import *
