from trip_node.settings.own_code import *
