from trip_node.node.predictions import *
