from trip_node.shapley.orders import *
