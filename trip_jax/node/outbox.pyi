from trip_node.node.outbox import *
