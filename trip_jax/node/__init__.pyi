from trip_node.node import *
