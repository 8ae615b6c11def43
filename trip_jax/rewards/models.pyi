from trip_node.rewards.models import *
