"""Who answers: one adapter per engine, each a launch spec and probes. Knows no workload."""
