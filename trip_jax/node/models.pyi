from trip_node.node.models import *
