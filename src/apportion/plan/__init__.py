"""What follows from the bags alone, each choice with its reason.

The estimator, the command line and the readers of data all ask here. Nothing else decides a
default that depends on the data, but for the nets of an average (`apportion.auto.members`). An
option that is given always wins. Print a plan to read it.
"""
