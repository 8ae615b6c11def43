from trip_node.settings.errors import *
