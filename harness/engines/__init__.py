"""The engines and their environments on this machine: listed, made, examined, removed."""
