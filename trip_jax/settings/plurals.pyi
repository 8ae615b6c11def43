from trip_node.settings.plurals import *
