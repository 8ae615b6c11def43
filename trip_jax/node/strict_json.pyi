from trip_node.node.strict_json import *
