"""What test_ctc_kernels runs in processes of their own, because Triton reads once whether it interprets or compiles.

``python ctc_kernel_tasks.py run CASES RESULTS`` computes losses and gradients; with TRITON_INTERPRET=1, on a CPU.
``python ctc_kernel_tasks.py compile CAPABILITY …`` compiles each kernel and prints its PTX.
"""

from __future__ import annotations

import sys

import torch


def run(cases: str, results: str) -> None:
    from allears.layers import ctc_kernels
    from allears.layers.ctc_loss import ctc_loss_by

    found = []
    for logits, *transcripts in torch.load(cases):
        leaf = logits.clone().requires_grad_()
        losses = ctc_loss_by(ctc_kernels, leaf.log_softmax(2), *transcripts)
        weighed = (losses * torch.arange(1, 1 + len(losses))).sum()
        found.append((losses.detach(), *torch.autograd.grad(weighed, leaf)))
    torch.save(found, results)


def compile_all(*capabilities: str) -> None:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from allears.layers import ctc_kernels

    integers = {"labels": "*i64", "lengths": "*i64", "token_lengths": "*i64", "first": "*i32", "following": "*i32"}
    types = integers | {"frames": "i32", "states": "i32", "vocabulary": "i32", "BLOCK": "constexpr"}
    for capability in capabilities:
        for kernel in (ctc_kernels._alphas, ctc_kernels._betas, ctc_kernels._rows):
            signature = {name: types.get(name, "*fp32") for name in kernel.arg_names}
            source = ASTSource(kernel, signature, constexprs={"BLOCK": 512})
            print(triton.compile(source, target=GPUTarget("cuda", int(capability), 32)).asm["ptx"])


if __name__ == "__main__":
    run(*sys.argv[2:]) if sys.argv[1] == "run" else compile_all(*sys.argv[2:])
