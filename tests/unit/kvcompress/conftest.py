"""One thread: the products in these tests are so small that threads wait for each other longer than they compute."""

import torch

torch.set_num_threads(1)
