from trip_node.node.texts import *
