from trip_node.settings.credentials import *
