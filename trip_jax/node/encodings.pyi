from trip_node.node.encodings import *
