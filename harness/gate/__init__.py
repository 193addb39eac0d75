"""Whether tonight's serving is worse than what was accepted: measured, judged, told to a CI system, and kept."""
