"""What the gateway decides, without I/O: requests in, replies out, who may call, who is asked."""
