"""SGLang's server where PyTorch is built for CPUs: `python -m sglang_on_cpu`, with the server's own arguments.

SGLang imports torchvision, whose wheels hold operators compiled for CUDA. Those do not load here, and torchvision
then fails to import because it registers shapes for two of them. So the two are declared before; nothing computes
them.

The declaration is at module level on purpose: the server's other processes import this module again when they start.
"""

import os
import sys

import torch

_OPERATORS = torch.library.Library("torchvision", "DEF")
for _name in ("nms", "qnms"):
    _OPERATORS.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def main(arguments: list[str]) -> None:
    """Serve until ended, then end every process of the server."""
    from sglang.launch_server import run_server
    from sglang.srt.server_args import prepare_server_args
    from sglang.srt.utils import kill_process_tree

    try:
        run_server(prepare_server_args(arguments))
    finally:
        kill_process_tree(os.getpid(), include_parent=False)


if __name__ == "__main__":
    main(sys.argv[1:])
