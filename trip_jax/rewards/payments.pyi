from trip_node.rewards.payments import *
