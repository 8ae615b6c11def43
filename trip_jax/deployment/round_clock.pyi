from trip_node.deployment.round_clock import *
