from trip_node.node.admission import *
