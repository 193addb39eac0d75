"""Whether this machine has an NVIDIA GPU that its driver shows."""


def nvidia_gpu_here() -> bool:
    """Asked of the driver, without any engine."""
    try:
        import pynvml

        pynvml.nvmlInit()
        try:
            return bool(pynvml.nvmlDeviceGetCount())
        finally:
            pynvml.nvmlShutdown()
    except Exception:  # NVML raises its own family; no library, no driver and no device are all the same here
        return False
