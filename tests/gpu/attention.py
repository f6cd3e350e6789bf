#!/usr/bin/env python3
"""torch's attention on the rows of gpu_attention (tools/bench), whose JSON file it reads: FlashAttention on packed rows,
and cuDNN's on rows of one length. Prints both beside ours; it judges nothing."""
import argparse
import json
import pathlib
import statistics
import sys

ROUNDS, LAUNCHES = 5, 20


def measure(torch, run):
    """Microseconds of a launch, or why there is no figure."""
    try:
        run()
        torch.cuda.synchronize()
        rounds = []
        for _ in range(ROUNDS):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(LAUNCHES):
                run()
            end.record()
            end.synchronize()
            rounds.append(begin.elapsed_time(end) * 1000 / LAUNCHES)
        return statistics.median(rounds)
    except (RuntimeError, TypeError) as error:
        return f"not here: {str(error).splitlines()[0][:60]}"


def flash(torch, case, kind):
    lengths, heads, dim, window = case["lengths"], case["heads"], case["head_dim"], case["window"] or -1
    q, k, v = (torch.randn(sum(lengths), heads, dim, device="cuda", dtype=kind) for _ in range(3))
    starts = torch.tensor([0, *lengths], device="cuda").cumsum(0).to(torch.int32)
    return measure(torch, lambda: torch.ops.aten._flash_attention_forward(
        q, k, v, starts, starts, max(lengths), max(lengths), 0.0, False, False, window_size_left=window, window_size_right=window))


def cudnn(torch, case, kind):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    if case["window"] or len(set(case["lengths"])) > 1:
        return "-"
    size = (len(case["lengths"]), case["heads"], case["lengths"][0], case["head_dim"])
    q, k, v = (torch.randn(size, device="cuda", dtype=kind) for _ in range(3))

    def run():
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            torch.nn.functional.scaled_dot_product_attention(q, k, v)
    return measure(torch, run)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ours", required=True, type=pathlib.Path)
    parser.add_argument("--backend", default="cuda", choices=["cuda", "cpu"], help="cpu: do nothing")
    options, _ = parser.parse_known_args()  # the others are those of all parts
    if options.backend == "cpu":
        return
    try:
        ours = json.loads(options.ours.read_text())
    except (OSError, ValueError) as error:
        sys.exit(f"FAILED: no figures of ours: {error}")
    import torch
    print(f"{'':26} {'ours':>10} {'flash':>10} {'cuDNN':>10}   us and TFLOP/s")
    for case in ours:
        kind = torch.float16 if case["precision"] == "f16" else torch.bfloat16
        lengths, work = case["lengths"], case["us"] * case["tflops"]
        name = f"{case['model']} {case['precision']} {lengths[0] if len(set(lengths)) == 1 else 'mixed'}"
        times = [case["us"], flash(torch, case, kind), cudnn(torch, case, kind)]
        shown = [f"{t:.0f} {work / t:.0f}" if isinstance(t, float) else t for t in times]
        ratio = f"{times[1] / times[0]:.2f} times flash's speed" if isinstance(times[1], float) else ""
        print(f"{name:26} {shown[0]:>10} {shown[1]:>10} {shown[2]:>10}   {ratio}", flush=True)


if __name__ == "__main__":
    main()
