from trip_node.deployment.report_table import *
