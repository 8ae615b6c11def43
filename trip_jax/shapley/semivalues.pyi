from trip_node.shapley.semivalues import *
