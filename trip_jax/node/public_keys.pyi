from trip_node.node.public_keys import *
