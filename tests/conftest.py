"""Keep torch to one thread: tests run side by side, and their tensors are small."""

import sys
from pathlib import Path

import torch

torch.set_num_threads(1)
sys.path.insert(0, str(Path(__file__).parent))
