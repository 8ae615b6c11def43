from trip_node.node.predictions_form import *
