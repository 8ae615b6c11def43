from trip_node.node.report import *
