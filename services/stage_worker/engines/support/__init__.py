"""What engines share: the weights they load, and how those get onto a machine."""
