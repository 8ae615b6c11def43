from trip_node.settings.names import *
