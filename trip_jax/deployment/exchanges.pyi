from trip_node.deployment.exchanges import *
