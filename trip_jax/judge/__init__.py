"""The referee: methods of contribution held against Shapley values that come with the package.

A standard cell is a small federation whose every coalition was executed once. Its values are kept;
its run is trained again in a second, so that any method can be judged without those executions.
"""
