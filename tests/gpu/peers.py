"""Measures the speed of others: sentence-transformers in f16 with SDPA, at the batch that suits it best, and
torch.compile.

In their favour, token ids are on the device already and vectors stay there; only `encode` is measured as people call it.
If a package is missing or a mode fails, the report says so and why."""
import statistics
import time

import numpy as np

import check_numbers
import references
import shapes
from driver import PACKED

NAME, COMPILED = "sentence-transformers", "torch.compile"


def open_peer(options, folder):
    """A SentenceTransformer in f16 (f32 on a CPU)."""
    import torch
    from sentence_transformers import SentenceTransformer
    references.quiet()
    kind = torch.float16 if options.backend == "cuda" else torch.float32
    model = SentenceTransformer(str(folder), device=options.torch_device, local_files_only=True,
                                model_kwargs={"dtype": kind, "attn_implementation": "sdpa"})
    model.max_seq_length = shapes.POSITIONS
    found = next(model[0].parameters()).dtype
    if found != kind:
        model = model.to(kind)
    return model.eval()


def padded(texts, device):
    """Ids and mask on the device, padded to the longest."""
    import torch
    longest = max(len(t) for t in texts)
    ids, mask = np.zeros((len(texts), longest), np.int64), np.zeros((len(texts), longest), np.int64)
    for row, text in enumerate(texts):
        ids[row, :len(text)], mask[row, :len(text)] = text, 1
    return {"input_ids": torch.from_numpy(ids).to(device), "attention_mask": torch.from_numpy(mask).to(device)}


def wait(options):
    import torch
    if options.backend == "cuda":
        torch.cuda.synchronize(options.torch_device)


def seconds(options, plan, run):
    """Median seconds of one run."""
    least = 0.001 if plan.quick else 0.1
    for _ in range(1 if plan.quick else 3):
        run()
    wait(options)
    rounds = []
    for _ in range(plan.rounds):
        begin, runs = time.perf_counter(), 0
        while runs == 0 or time.perf_counter() - begin < least:
            run()
            wait(options)
            runs += 1
        rounds.append((time.perf_counter() - begin) / runs)
    return statistics.median(rounds)


def same_model(options, report, folder, name, model, driver):
    """Checks that both compute the same: a comparison of two different models would mean nothing."""
    import torch
    texts = check_numbers.make_texts([3, 17, 60, 60], 9)
    with torch.inference_mode():
        theirs = model.forward(padded(texts, options.torch_device))["sentence_embedding"].float().cpu().numpy()
    precision = "f16" if options.backend == "cuda" else "f32"
    ours, _ = driver.vectors(folder, texts, [[(PACKED, range(len(texts)))]], theirs.shape[1], "--precision", precision)
    worst = float(check_numbers.cosines(ours, theirs).min())
    if not worst >= 0.999:
        report.fail(f"{name} beside {NAME}", f"two different models: cosine {worst:.5f}")


def fixed(options, report, folder, name, plan, driver):
    """peer -> length -> tokens/s, at the batch that is best for each."""
    try:
        import torch
        model = open_peer(options, folder)
    except Exception as error:  # the report names any reason for which a peer does not start
        report.absent(f"{name} {NAME}", f"{type(error).__name__}: {error}", options.backend == "cuda")
        return {}
    same_model(options, report, folder, name, model, driver)
    rates = {NAME: {}, COMPILED: {}}
    with torch.inference_mode():
        for length in plan.lengths:
            for tokens in [plan.budgets[0] // 4, *plan.budgets]:
                rows = max(1, tokens // length)
                batch = padded(check_numbers.make_texts([length] * rows, length), options.torch_device)
                taken = seconds(options, plan, lambda: model.forward(dict(batch)))
                rates[NAME][length] = max(rates[NAME].get(length, 0), rows * length / taken)
        if options.compile:
            length = 128 if 128 in plan.lengths else plan.lengths[0]
            compiled(options, report, folder, name, plan, length, rates[COMPILED])
    return {peer: found for peer, found in rates.items() if found}


def compiled(options, report, folder, name, plan, length, rates):
    """transformers' own model through torch.compile, for one shape at a time; vectors by the same pooling."""
    import torch
    kind = torch.float16 if options.backend == "cuda" else torch.float32
    try:
        model = references.load_transformers(folder, kind, options.torch_device)
        pooling = shapes.SHAPES[name]["pooling"]

        def forward(ids, mask):
            return references.pool(model(input_ids=ids, attention_mask=mask).last_hidden_state, mask, pooling)

        fast = torch.compile(forward, dynamic=False)
        for tokens in plan.budgets[-2:]:
            batch = padded(check_numbers.make_texts([length] * max(1, tokens // length), length), options.torch_device)
            taken = seconds(options, plan, lambda: fast(batch["input_ids"], batch["attention_mask"]))
            rates[length] = max(rates.get(length, 0), batch["input_ids"].numel() / taken)
    except Exception as error:  # it depends on a compiler of its own
        report.absent(f"{name} {COMPILED}", f"{type(error).__name__}: {str(error)[:300]}", False)


def mixed(options, report, folder, name, plan, lengths, ours):
    """Texts/s of `encode` as people call it (tokenising, sorting and padding included), and of the model alone on batches
    that are sorted and on the device already; the best batch of each."""
    try:
        import torch
        model = open_peer(options, folder)
    except Exception as error:
        report.absent(f"{name} mixed: {NAME}", f"{type(error).__name__}: {error}", options.backend == "cuda")
        return
    texts = check_numbers.make_texts(lengths, 3)
    order = sorted(range(len(texts)), key=lambda i: lengths[i])
    words = [" ".join(f"w{i - 5}" for i in text[1:-1]) for text in texts]  # the ids' own words, for the tokenizer
    found = {"forward": {}, "encode": {}}
    with torch.inference_mode():
        for rows in [plan.fifo_rows[0]] if plan.quick else [32, 64, 128, 256, 512]:
            batches = [padded([texts[i] for i in order[at:at + rows]], options.torch_device)
                       for at in range(0, len(order), rows)]
            found["forward"][rows] = len(texts) / seconds(options, plan, lambda: [model.forward(dict(b)) for b in batches])
            begin = time.perf_counter()
            model.encode(words, batch_size=rows, convert_to_numpy=True)
            found["encode"][rows] = len(texts) / (time.perf_counter() - begin)
    for kind, rates in found.items():
        rows = max(rates, key=rates.get)
        ratio = ours / rates[rows]
        report.speed(f"{name} mixed: {NAME} {kind}, {rows} rows",
                     f"{rates[rows]:12,.0f} texts/s; ours, packed, is {ratio:.2f} of it",
                     texts_s=rates[rows], ours_over_it=ratio, all=rates)
