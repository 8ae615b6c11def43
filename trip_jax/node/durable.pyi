from trip_node.node.durable import *
