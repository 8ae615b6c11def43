from trip_node.deployment.table_file import *
