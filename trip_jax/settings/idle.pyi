from trip_node.settings.idle import *
