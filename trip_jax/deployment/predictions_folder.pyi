from trip_node.deployment.predictions_folder import *
