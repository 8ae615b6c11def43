from trip_node.node.evaluator import *
