from trip_node.shapley.tables import *
