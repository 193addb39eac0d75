"""The in-house engine whose subject is the KV cache: eviction, quantisation, sharing, budgets per request."""
