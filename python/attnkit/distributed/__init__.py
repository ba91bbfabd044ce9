# SPDX-License-Identifier: Apache-2.0
"""Attention over keys that lie on several processes or machines.

chain_attention passes softmax states from rank to rank and gives the bits that one process with all keys gives.
tree_attention merges the results of all ranks. For few rows, tree_attention takes less time than chain_attention. A
group sends messages between the ranks: torch_group over torch.distributed, mpi_group over mpi4py, or Group over a
transport of your own. torch is only imported by torch_group and for torch's tensors of bfloat16, mpi4py only by
mpi_group. chain_cost and tree_cost say what a call sends and about how long the call takes."""

from ._chain import chain_attention
from ._cost import Cost, Link, chain_cost, measure_link, tree_cost
from ._group import Group, PeerError
from ._mpi import mpi_group
from ._torch import torch_group
from ._tree import tree_attention

__all__ = ["Cost", "Group", "Link", "PeerError", "chain_attention", "chain_cost", "measure_link", "mpi_group",
           "torch_group", "tree_attention", "tree_cost"]
