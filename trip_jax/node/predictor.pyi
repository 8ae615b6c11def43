from trip_node.node.predictor import *
