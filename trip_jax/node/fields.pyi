from trip_node.node.fields import *
