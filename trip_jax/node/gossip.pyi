from trip_node.node.gossip import *
