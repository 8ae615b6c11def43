from trip_node.node.flower import *
