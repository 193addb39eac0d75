"""Keys of a configuration that are no part of the setting that was measured, for all that tells settings apart."""

# Where results lie and how many were wanted; how a server is got to run; what only a check is held against.
MEASURES_NOTHING = (
    *("results_dir", "repeats"),
    *("backend.install", "backend.port", "backend.start_timeout_s"),
    "hardware.drift_limit",
)
# Every way in which a seed gets into the configuration; an engine's own follows the run's.
SEEDS = ("seed", "backend.seed")
# What the machine costs: figures of cost follow from it, and nothing that is measured.
PRICE = ("hardware.price_per_hour", "hardware.currency")
