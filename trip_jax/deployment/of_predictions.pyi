from trip_node.deployment.of_predictions import *
