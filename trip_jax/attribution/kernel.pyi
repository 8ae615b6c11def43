from trip_node.attribution.kernel import *
