"""The programs of StageMesh, which meet on the wire only."""
