"""StageMesh, the library that every service and every client stands on."""
