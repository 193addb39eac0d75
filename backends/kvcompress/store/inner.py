"""How the functions are compiled that only other compiled functions call."""

from typing import Any

import numba

# No wrappers to call them from Python, which take longer to compile than what they wrap; no check of each division.
inlined: Any = numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, error_model="numpy")
