"""The process of one implementation:  python worker.py ours|transformers MODEL_FOLDER THREADS

Answers calls over standard input and output (`driver.serve`). What libraries print goes to standard error.
"""

import os
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def main(name: str, model: str, threads: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    # Thread pools are sized when a library is imported.
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[variable] = threads
    os.environ["HF_HUB_OFFLINE"] = "1"
    sys.path[0] = str(_ROOT)  # instead of this folder, whose modules are named like others
    from benchmarks.kv.driver import serve

    if name == "ours":
        from benchmarks.kv.ours import Ours as Chosen
    else:
        from benchmarks.kv.transformers_driver import Transformers as Chosen
    serve(Chosen(Path(model), int(threads)), answers)


if __name__ == "__main__":
    main(*sys.argv[1:])
