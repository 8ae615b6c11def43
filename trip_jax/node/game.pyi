from trip_node.node.game import *
