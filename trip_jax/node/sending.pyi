from trip_node.node.sending import *
