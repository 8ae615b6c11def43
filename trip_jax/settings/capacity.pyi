from trip_node.settings.capacity import *
