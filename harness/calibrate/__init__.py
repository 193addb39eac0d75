"""How exact the measuring client is on this machine: a server of known instants, and what the client says of it."""
