from trip_node.deployment.from_predictions import *
