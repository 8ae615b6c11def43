from trip_node.settings.text_files import *
