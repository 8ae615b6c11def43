from trip_node.settings.room import *
