from trip_node.node.csv_lines import *
