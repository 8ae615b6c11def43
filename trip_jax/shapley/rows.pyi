from trip_node.shapley.rows import *
