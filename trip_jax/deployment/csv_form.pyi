from trip_node.deployment.csv_form import *
