from trip_node.settings.declared import *
