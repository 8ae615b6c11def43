from trip_node.node.utility import *
