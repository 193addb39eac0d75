"""The recorded runs: listed, shown, exported, deleted."""
