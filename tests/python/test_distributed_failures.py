# SPDX-License-Identifier: MIT
"""A rank that fails: the others, which wait for it in a collective that a formula's call issues, get
an error, soon. Two gloo processes; what they print is looked at. OGIVE_TEST_FULL=1: more ways to fail."""
import os
import subprocess
import sys
import time

import pytest
import torch.distributed

if not torch.distributed.is_available():
    pytest.skip("PyTorch without torch.distributed", allow_module_level=True)

SECONDS = 10  # that a collective waits

# Rank 1 does not come to the second call: how it fails stands in the place of FAILS.
PROGRAM = """
import datetime, os, sys
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
import ogive

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2,
                        timeout=datetime.timedelta(seconds=SECONDS))
mesh = init_device_mesh("cpu", (2,))
x = distribute_tensor(torch.ones(4, 6), mesh, [Shard(1)])
w = distribute_tensor(torch.ones(3, 6), mesh, [Shard(1)])
f = ogive.compile("sigmoid(linear(x, w))")  # a sum of both ranks' is reduced
assert f(x=x, w=w).full_tensor().shape == (4, 3)
print("first call", flush=True)
if rank == 1:
    FAILS
f(x=x, w=w).full_tensor()
print("second call", flush=True)
"""

FAILURES = {"crashes": "os.kill(os.getpid(), 11)", "bad input": "f(x=x, w=torch.ones(3, 5))"}
if os.environ.get("OGIVE_TEST_FULL"):
    FAILURES |= {"exits": "os._exit(3)", "raises": "raise KeyError('what went wrong')"}


@pytest.mark.parametrize("name", FAILURES)
def test_a_rank_fails(name, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("FAILS", FAILURES[name]).replace("SECONDS", str(SECONDS)))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    began = time.monotonic()
    ranks = [subprocess.Popen([sys.executable, program, str(rank), tmp_path / "store"], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
             for rank in range(2)]
    try:
        texts = [rank.communicate(timeout=120) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    for rank, (out, error) in zip(ranks, texts):
        assert out.split("\n")[0] == "first call" and "second call" not in out, (out, error)
        assert rank.returncode != 0
    assert "Error" in texts[0][1], texts[0][1]  # which one is gloo's affair
    if name == "bad input":
        assert "input 'w' is a tensor, 'x' a DTensor" in texts[1][1], texts[1][1]
    assert time.monotonic() - began < 100
