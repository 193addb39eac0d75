"""What all rooms share; imports nothing else of the project."""
