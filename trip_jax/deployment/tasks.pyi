from trip_node.deployment.tasks import *
