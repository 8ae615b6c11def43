from trip_node.node.examples import *
