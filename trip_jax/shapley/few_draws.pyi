from trip_node.shapley.few_draws import *
