from trip_node.node.testimonies import *
