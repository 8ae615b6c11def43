from trip_node.attribution.contraction import *
