"""The value of every default, one YAML file per choice. A package, so that it is found wherever it is installed."""
