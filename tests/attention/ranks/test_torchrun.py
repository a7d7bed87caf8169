"""Ranks that torchrun starts, as people start them."""

import subprocess
import sys

PROGRAM = """
import torch
import torch.distributed as dist
import regard

dist.init_process_group("gloo")
torch.manual_seed(0)
query, keys = torch.randn(3, 8), torch.randn(10, 8)
share = keys.tensor_split(2)[dist.get_rank()]
reading = regard.attend(query, share, share, mask=regard.masks.causal(align="end"), group=dist.group.WORLD)
expected = regard.attend(query, keys, keys, mask=regard.masks.causal(align="end"))
assert torch.allclose(reading, expected, atol=1e-6), (reading, expected)
open(f"equal-{dist.get_rank()}", "w").close()
dist.destroy_process_group()
"""


def test_two_processes_read_as_one(tmp_path):
    path = tmp_path / "read.py"
    path.write_text(PROGRAM, encoding="utf-8")
    words = ["--standalone", "--nproc-per-node", "2", "--log-dir", str(tmp_path), str(path)]
    command = [sys.executable, "-m", "torch.distributed.run", *words]
    run = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path
    )
    assert run.returncode == 0, run.stderr
    assert sorted(path.name for path in tmp_path.glob("equal-*")) == ["equal-0", "equal-1"]
