from trip_node.node.exchanges import *
