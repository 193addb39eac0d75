"""The blocks that OpenVINO GenAI keeps keys and values in; a request grows, and is evicted, by whole ones."""

# The library fixes the size by device (others than the CPU's: read in its source, never run here).
_TOKENS = {"cpu": 32}
_TOKENS_ELSEWHERE = 16


def block_tokens(device: str) -> int:
    """Tokens of one KV block; device: such as "cpu", "GPU.1"."""
    return _TOKENS.get(device.split(".")[0].lower(), _TOKENS_ELSEWHERE)
