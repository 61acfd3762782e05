"""Each kernel's double in NumPy: the same name, the same parameters, float64.

Each function takes what the kernel is launched with and returns what its outputs hold afterwards, by parameter. It
leaves out parameters, as `_`, that change no output.
It is written for being read, and shares nothing with the kernels but their definition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.engine.workspace import ParameterMemory
from stages.large_batch.layout import CLASSES, OUTPUT_SCALE, PAD, WEIGHT_SCALE, Layout
from stages.persistent.grid_plan import GridPlan
from stages.persistent.messages_plan import GRADIENT_SCALE
from tests.kernels.halves import first_sums, from_chunks, matrix, neighbour_grams_of, scaled_down
from tests.kernels.networks import network, network_step

Array = NDArray[np.float64]
Labels = NDArray[np.int32]
Halves = NDArray[np.float16]
Bits = NDArray[np.uint16]  # of float16
Outputs = dict[str, NDArray[Any]]


def gemm_naive(
    a: Array, b: Array, out: Array, m: int, n: int, k: int, trans_a: int, trans_b: int, alpha: float, beta: float
) -> Outputs:
    op_a = a.T if trans_a else a
    op_b = b.T if trans_b else b
    product = alpha * np.einsum("ik,kj->ij", op_a, op_b)
    return {"out": product if beta == 0 else product + beta * out}


def tile_product_f32(
    a: Array,
    b: Array,
    out: Array,
    bias: Array,
    mask: NDArray[np.uint8],
    n: int,
    transposes: int,
    fusion: int,
    alpha: float,
    beta: float,
    scale: float,
    **_: Any,
) -> Outputs:
    op_a, op_b = a.T if transposes == 1 else a, b.T if transposes == 2 else b
    product = alpha * scale * np.einsum("ik,kj->ij", op_a.astype(np.float64), op_b)
    if fusion == 1:
        return {"out": product + bias, "bias": bias, "mask": mask}
    if fusion == 2:
        passed = product + bias > 0
        bits = np.packbits(passed, axis=1, bitorder="little")
        return {"out": np.where(passed, product + bias, 0), "mask": np.hstack([bits, mask[:, bits.shape[1] :]])}
    if fusion == 3:
        return {"out": np.where(np.unpackbits(mask, axis=1, bitorder="little")[:, :n], product, 0), "mask": mask}
    out = product if beta == 0 else product + beta * out
    if fusion == 4:
        return {"out": out, "bias": alpha * scale * b.sum(axis=0) + beta * bias}
    return {"out": out, "bias": bias}


tile_product_tf32 = tile_product_bf16 = tile_product_f16 = tile_product_split = tile_product_f32


def tile_product_u8(a: NDArray[np.uint8], *rest: Any, **named: Any) -> Outputs:
    return tile_product_f32(a / 256, *rest, **named)


def streamed_forward_split(
    inputs: Array, weights: Array, out: Array, bias: Array, mask: NDArray[np.uint8], fan_out: int, fusion: int, **_: Any
) -> Outputs:
    return tile_product_f32(inputs, weights, out, bias, mask, fan_out, 0, fusion, alpha=1.0, beta=0.0, scale=1.0)


streamed_forward_bf16 = streamed_forward_split


def streamed_back_split(
    inputs: Array,
    doutputs: Array,
    weights: Array,
    bias: Array,
    dinputs: Array,
    mask: NDArray[np.uint8],
    fan_in: int,
    fan_out: int,
    mask_bytes: int,
    learning_rate: float,
    **_: Any,
) -> Outputs:
    passed = np.unpackbits(mask, axis=1, bitorder="little")[:, :fan_in]
    return {
        "dinputs": np.where(passed, doutputs @ weights.T, 0) if mask_bytes else dinputs,
        "weights": weights - learning_rate * inputs.T @ doutputs,
        "bias": bias - learning_rate * doutputs.sum(axis=0),
    }


streamed_back_bf16 = streamed_back_split


def ring_forward(
    inputs: Array,
    input_panels: Array,
    weights: Array,
    output_panels: Array,
    batch: int,
    fan_in: int,
    are_in_panels: int,
    into_panels: int,
    plain: Array,
    **others: Any,
) -> Outputs:
    if are_in_panels:
        inputs = input_panels[:, :batch, :64].swapaxes(0, 1).reshape(batch, -1)[:, :fan_in]
    found = streamed_forward_split(inputs, plain, **others)
    panels = output_panels.copy()
    if into_panels:
        panels[:, :batch, :64] = found["out"].reshape(batch, -1, 64).swapaxes(0, 1)
    return {**found, "output_panels": panels}


def ring_back(weights: Array, plain: Array, **args: Any) -> Outputs:
    return streamed_back_split(weights=plain, **args)


def add_bias(output: Array, bias: Array, rows: int, cols: int) -> Outputs:
    return {"output": output + bias}


def add_biases(output: Array, bias: Array, rows: int, cols: int, stride: int) -> Outputs:
    return {"output": output + bias[:, None, :cols]}


def relu(output: Array, count: int) -> Outputs:
    return {"output": np.maximum(output, 0)}


def relu_backward(doutput: Array, output: Array, count: int) -> Outputs:
    return {"doutput": np.where(output <= 0, 0, doutput)}


def bias_gradient(doutput: Array, dbias: Array, rows: int, cols: int) -> Outputs:
    return {"dbias": doutput.sum(axis=0)}


def bias_update(doutput: Array, bias: Array, learning_rate: float, rows: int, cols: int) -> Outputs:
    return {"bias": bias - learning_rate * doutput.sum(axis=0)}


def softmax(logits: Array, probs: Array, rows: int, classes: int) -> Outputs:
    powers = np.exp(logits)
    return {"probs": powers / powers.sum(axis=1, keepdims=True)}


def softmax_xent_backward(probs: Array, labels: Labels, dlogits: Array, rows: int, classes: int) -> Outputs:
    return {"dlogits": (probs - np.eye(classes)[labels]) / rows}  # of one network, or of several in one more axis


def softmax_xent_totals(logits: Array, labels: Labels, totals: Array, rows: int, classes: int) -> Outputs:
    losses = np.log(np.exp(logits).sum(axis=-1)) - logits[..., np.arange(rows), labels]
    correct = logits.argmax(axis=-1) == labels
    return {"totals": totals + np.stack([losses.sum(axis=-1), correct.sum(axis=-1)], axis=-1)}


def softmax_xent(
    logits: Array, labels: Labels, dlogits: Array, totals: Array, rows: int, classes: int, with_totals: int
) -> Outputs:
    probs = softmax(logits, dlogits, rows, classes)["probs"]
    return {
        **softmax_xent_backward(probs, labels, dlogits, rows, classes),
        **(softmax_xent_totals(logits, labels, totals, rows, classes) if with_totals else {"totals": totals}),
    }


def last_layer(
    inputs: Array,
    weights: Array,
    bias: Array,
    labels: Labels,
    dinputs: Array,
    totals: Array,
    batch: int,
    fan_in: int,
    with_totals: int,
    learning_rate: float,
) -> Outputs:
    logits = inputs @ weights + bias
    head = softmax_xent(logits, labels, dinputs, totals, batch, len(bias), with_totals)
    dlogits = head["dlogits"]
    return {
        "dinputs": np.where(inputs > 0, dlogits @ weights.T, 0),
        "weights": weights - learning_rate * inputs.T @ dlogits,
        "bias": bias - learning_rate * dlogits.sum(axis=0),
        "totals": head["totals"],
    }


def sgd_update(param: Array, gradient: Array, learning_rate: float, count: int) -> Outputs:
    return {"param": param - learning_rate * gradient}


def sgd_updates(param: Array, gradient: Array, learning_rates: Array, count: int) -> Outputs:
    return {"param": param - learning_rates[:, None] * gradient}


def peer_send(
    gradient: Array, theirs: Array, rounds: Array, share: float, begin: int, end: int, rank: int, **_: Any
) -> Outputs:
    sent, place, some = theirs.copy(), int(rounds[0]) % 2, slice(4 * begin, 4 * end)
    sent[place, rank, some] = _messages(gradient, share, int(rounds[0]))[some]
    return {"theirs": sent, "rounds": rounds + 1}


def peer_update(
    param: Array,
    gradient: Array,
    theirs: Array,
    mailbox: Array,
    rounds: Array,
    share: float,
    learning_rate: float,
    units: int,
    rank: int,
    sends: int,
    **_: Any,
) -> Outputs:
    messages = mailbox[int(rounds[0]) % 2].astype(np.uint32)
    messages[rank] = _messages(gradient, share, int(rounds[0]))
    total = (messages & ~np.uint32(1)).view(np.float32).astype(np.float64).sum(axis=0)
    sent = peer_send(gradient, theirs, rounds, share, 0, units, rank)["theirs"]
    return {"param": param - learning_rate * total, "theirs": sent if sends else theirs, "rounds": rounds + 1}


def peer_sums(
    gradients: Array,
    partials: Array,
    block_totals: Array,
    theirs: Array,
    mailbox: Array,
    rounds: Array,
    part: float,
    splits: int,
    features: int,
    width: int,
    shares: int,
    share: int,
    units: int,
    rank: int,
    with_totals: int,
    halves: int,
) -> Outputs:
    number = int(rounds[0])
    own = np.zeros(4 * units)
    own[:share] = partials.sum(axis=0)
    weights = gradients.reshape(splits, features, halves, width).sum(axis=(0, 2))
    own[4 * units - weights.size :] = weights.ravel()
    received = (mailbox[number % 2, 1 - rank].astype(np.uint32) & ~np.uint32(1)).view(np.float32)
    both = part * own + received
    sums, of_shares, totals = gradients.copy(), partials.copy(), block_totals.copy()
    sums[0].reshape(features, halves, width)[:] = 0
    sums[0].reshape(features, halves, width)[:, 0] = both[4 * units - weights.size :].reshape(features, width)
    of_shares[0] = both[:share]
    if with_totals:
        totals[0] = block_totals.sum(axis=0)
    sent = theirs.astype(np.float64)
    sent[number % 2, rank] = part * own
    outputs = {"gradients": sums, "partials": of_shares, "block_totals": totals}
    return {**outputs, "theirs": sent, "rounds": rounds + 1}


def _messages(gradient: Array, share: float, number: int) -> NDArray[np.uint32]:
    """To 23 bits, halves to even, and a tag that differs from the one two rounds before."""
    bits = (gradient * share).astype(np.float32).view(np.uint32)
    return ((bits + (bits >> 1 & 1)) & ~np.uint32(1)) | np.uint32(1 - number // 2 % 2)


def neighbour_grams(
    images: Halves, grams: Halves, ready: Labels, steps: int, pairs: int, tiles: int, epoch: int
) -> Outputs:
    return {"grams": neighbour_grams_of(images), "ready": np.full_like(ready, epoch)}


def persistent_cluster(
    images: Halves,
    labels: Labels,
    weight: Array,
    bias: Array,
    totals: Array,
    learning_rates: Array,
    inputs: int,
    classes: int,
    with_totals: int,
    **_: Any,
) -> Outputs:
    weight, bias, totals = weight.copy(), bias.copy(), totals.copy()
    for index, learning_rate in enumerate(learning_rates):
        own, own_bias = weight[index, :inputs], bias[index, :classes]
        for batch, wanted in zip(images, labels, strict=True):
            x = np.block([[matrix(lanes) for lanes in row] for row in batch.swapaxes(0, 1)]).astype(float)
            count, rows = (wanted >= 0).sum(), len(x)
            x, wanted = x[:count, :inputs], wanted[:count]
            logits = x @ own + own_bias
            if with_totals:
                totals[index] = softmax_xent_totals(logits, wanted, totals[index], count, classes)["totals"]
            dlogits = (softmax(logits, logits, count, classes)["probs"] - np.eye(classes)[wanted]) / rows
            own -= learning_rate * x.T @ dlogits
            own_bias -= learning_rate * dlogits.sum(axis=0)
    return {"weight": weight, "bias": bias, "totals": totals}


def fleet_columns(images: Bits, count: int, **args: Any) -> Outputs:
    assert count == len(args["learning_rates"])
    steps, chunks, of_batch = images.shape[:3]
    four = images.view(np.float16).reshape(steps, chunks // 2, 2, of_batch // 2, 2, 8, 8).transpose(0, 1, 3, 4, 2, 5, 6)
    return persistent_cluster(four, **args)


def _train(
    weights: list[Array], biases: list[Array], x: Array, wanted: Labels, rate: float, totals: Array, with_totals: int
) -> Array:
    """Update the parameters; returns the totals with a step's more."""
    logits = network_step(weights, biases, x, wanted, rate)
    return softmax_xent_totals(logits, wanted, totals, *logits.shape)["totals"] if with_totals else totals


def cluster_mlp(
    images: Halves,
    labels: Labels,
    parameters: Array,
    totals: Array,
    learning_rates: Array,
    with_totals: int,
    plan: Labels,
    **_: Any,
) -> Outputs:
    parameters, totals = parameters.copy(), totals.copy()
    for index, learning_rate in enumerate(learning_rates):
        weights, biases = network(plan, parameters[index])
        for batch, wanted in zip(images, labels, strict=True):
            x = batch.transpose(1, 2, 0, 3).reshape(8 * batch.shape[1], -1).astype(np.float64)
            x = x[: len(wanted), : len(weights[0])]
            totals[index] = _train(weights, biases, x, wanted, learning_rate, totals[index], with_totals)
    return {"parameters": parameters, "totals": totals}


def cluster_ahead(
    pixels: Array,
    labels: Labels,
    weights: Array,
    bias: Array,
    last_weights: Array,
    last_bias: Array,
    totals: Array,
    batch: int,
    rate: float,
    with_totals: int,
    **_: Any,
) -> Outputs:
    matrices, biases = [weights.copy(), last_weights.copy()], [bias.copy(), last_bias.copy()]
    for x, wanted in zip(pixels.astype(np.float64), labels[:, :batch], strict=True):
        totals = _train(matrices, biases, x, wanted, rate * batch, totals, with_totals)
    (weights, last_weights), (bias, last_bias) = matrices, biases
    names = ("weights", "bias", "last_weights", "last_bias", "totals")
    return dict(zip(names, (weights, bias, last_weights, last_bias, totals), strict=True))


def grid_messages(
    memory: ParameterMemory,
    pixels: Array,
    labels: Labels,
    parameters: Array,
    totals: Array,
    rate: float,
    with_totals: int,
    **_: Any,
) -> Outputs:
    parameters = parameters.copy()  # the layers are views, and change with them
    places = zip(memory.weight_begins, memory.bias_begins, memory.weights, strict=True)
    layers = [(parameters[at:][: w.size].reshape(w.shape), parameters[bias:][: w.shape[1]]) for at, bias, w in places]
    weights, biases = (list(each) for each in zip(*layers, strict=True))
    for x, wanted in zip(pixels.astype(np.float64), labels, strict=True):
        totals = _train(weights, biases, x, wanted, rate * GRADIENT_SCALE * len(wanted), totals, with_totals)
    return {"parameters": parameters, "totals": totals}


divided_batch = divided_hidden = stationary_epoch = grid_messages


def streaming_epoch(memory: ParameterMemory, parameters: Array, **args: Any) -> Outputs:
    assert parameters.shape == memory.flat.shape  # in planes; in `memory` they are not
    return grid_messages(memory, parameters=memory.flat.astype(np.float64), **args)


def persistent_grid(
    plan: GridPlan,
    images: Array,
    labels: Labels,
    parameters: Array,
    block_totals: Array,
    totals: Array,
    arrived: NDArray[np.uint32],
    steps: int,
    learning_rate: float,
    with_totals: int,
    **_: Any,
) -> Outputs:
    layers = plan.layers
    pixels = (images.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    parameters = parameters.copy()  # the layers are views, and change with them
    weights = [parameters[la.weight :][: la.inputs * la.outputs].reshape(la.inputs, la.outputs) for la in layers]
    biases = [parameters[la.bias :][: la.outputs] for la in layers]
    for batch, wanted in zip(pixels, labels, strict=True):
        x = np.hstack(list(batch))[: len(wanted), : layers[0].inputs]
        totals = _train(weights, biases, x, wanted, learning_rate, totals, with_totals)
    blocks = len(block_totals)
    barriers = steps * plan.barriers + with_totals  # a single block counts none
    came = np.array([blocks * barriers if blocks > 1 else 0], np.uint32)
    return {"parameters": parameters, "totals": totals, "arrived": came}


grid_pairs = persistent_grid


def fleet_grid(
    parameters: Array,
    block_totals: Array,
    totals: Array,
    arrived: NDArray[np.uint32],
    learning_rates: Array,
    with_totals: int,
    **args: Any,
) -> Outputs:
    each = zip(parameters, block_totals, totals, arrived, learning_rates, strict=True)
    names = ("parameters", "block_totals", "totals", "arrived", "learning_rate")
    found = [persistent_grid(**dict(zip(names, own, strict=True)), with_totals=with_totals, **args) for own in each]
    stacked = {name: np.stack([of_one[name] for of_one in found]) for name in ("parameters", "totals")}
    came = np.zeros_like(arrived)
    came[:, :1] = [of_one["arrived"] for of_one in found]
    of_all_blocks = stacked["totals"] - totals if with_totals else np.full_like(totals, np.nan)
    return stacked | {"arrived": came, "block_totals": of_all_blocks}


def hidden_head(
    layout: Layout,
    sums: Bits,
    hidden_bias: Array,
    by_class: Bits,
    by_unit: Bits,
    bias: Array,
    labels: Labels,
    dsums: Bits,
    partials: Array,
    block_totals: Array,
    batch: int,
    units: int,
    classes: int,
    gradient_scale: float,
    with_totals: int,
) -> Outputs:
    weights = scaled_down(by_unit)[:units, :classes]
    outputs = np.maximum(first_sums(layout, sums)[:, :units] + hidden_bias, 0)
    logits = outputs @ weights + bias
    dlogits = (softmax(logits, logits, batch, classes)["probs"] - np.eye(classes)[labels]) / batch
    gradient = np.where(outputs > 0, dlogits @ weights.T, 0)
    wide = np.zeros((batch, layout.width))
    wide[:, :units] = gradient * gradient_scale
    return {"dsums": wide} | _shares(
        layout, outputs, logits, labels, [gradient, dlogits], partials, block_totals, with_totals
    )


def hidden_layers(
    layout: Layout,
    sums: Bits,
    weights: Bits,
    last_weights: Bits,
    biases: Array,
    labels: Labels,
    outputs: Bits,
    dsums: Bits,
    partials: Array,
    block_totals: Array,
    batch: int,
    gradient_scale: float,
    with_totals: int,
) -> Outputs:
    layers = layout.problem.layers
    added = [row[: layer.fan_out] for row, layer in zip(biases / OUTPUT_SCALE, layers, strict=True)]
    padded = [*scaled_down(weights[..., :-PAD]), scaled_down(last_weights)]
    matrices = [each[: layer.fan_in, : layer.fan_out] for each, layer in zip(padded, layers[1:], strict=True)]
    first = first_sums(layout, sums)[:, : layers[0].fan_out]
    passed = [np.maximum(first + added[0], 0)]
    for weight, bias in zip(matrices[:-1], added[1:-1], strict=True):
        passed.append(np.maximum(passed[-1] @ weight + bias, 0))
    logits = passed[-1] @ matrices[-1] + added[-1]
    classes = layers[-1].fan_out
    gradients = [(softmax(logits, logits, batch, classes)["probs"] - np.eye(classes)[labels]) / batch]
    for weight, output in zip(reversed(matrices), reversed(passed), strict=True):
        gradients.insert(0, np.where(output > 0, gradients[0] @ weight.T, 0))

    def widened(rows: Array) -> Array:
        return np.pad(rows, ((0, 0), (0, layout.width - rows.shape[1])))

    shares = _shares(layout, passed[-1], logits, labels, gradients, partials, block_totals, with_totals)
    return shares | {
        "outputs": np.stack([widened(OUTPUT_SCALE * output) for output in passed])[:-1],
        "dsums": np.stack([widened(gradient_scale * gradient) for gradient in gradients[:-1]]),
    }


def _shares(
    layout: Layout,
    outputs: Array,
    logits: Array,
    labels: Labels,
    gradients: Sequence[Array],
    partials: Array,
    block_totals: Array,
    with_totals: int,
) -> Outputs:
    """Each block's share of the last layer's gradients, of the hidden biases' and of the totals."""
    partials, block_totals = partials.copy(), block_totals.copy()
    tile = np.arange(len(logits)) // layout.head_rows
    for block in range(len(partials)):
        own = tile % len(partials) == block
        *hidden, last = (gradient[own] for gradient in gradients)
        parts = outputs[own].T @ last, last.sum(axis=0), *(gradient.sum(axis=0) for gradient in hidden)
        partials[block] = np.concatenate([part.ravel() for part in parts])
        if with_totals:
            some, wanted = logits[own], labels[own]
            block_totals[block] = softmax_xent_totals(some, wanted, np.zeros(2), *some.shape)["totals"]
    return {"partials": partials, "block_totals": block_totals}


def update_all(
    layout: Layout,
    memory: ParameterMemory,
    gradients: Array,
    further_gradients: Array,
    partials: Array,
    parameters: Array,
    block_totals: Array,
    totals: Array,
    splits: int,
    further_splits: int,
    features: int,
    width: int,
    shares: int,
    rate: float,
    with_totals: int,
    **_: Any,
) -> Outputs:
    *hidden, last = layout.problem.layers
    low = layout.halves
    summed = [gradients[:splits].sum(axis=0).reshape(features, low, width).sum(axis=1)]
    for own in further_gradients.reshape(layout.further, further_splits, low, width, low, width):
        each = own.sum(axis=0)
        summed.append(sum(each[i, :, j] for i in range(low) for j in range(low - i)))
    ends = np.cumsum([last.fan_in * last.fan_out, last.fan_out, *(layer.fan_out for layer in hidden)])
    share = np.split(partials[:shares].sum(axis=0), ends[:-1])
    steps = [*summed, share[0].reshape(last.fan_in, last.fan_out)]
    updated = parameters.copy()
    new = []
    for layer, at, step in zip(layout.problem.layers, memory.weight_begins, steps, strict=True):
        view = updated[at : at + layer.fan_in * layer.fan_out].reshape(layer.fan_in, layer.fan_out)
        view -= rate * step[: layer.fan_in, : layer.fan_out]
        padded = np.full((max(width, features), max(width, CLASSES)), np.nan)
        padded[: layer.fan_in, : layer.fan_out] = view * WEIGHT_SCALE
        new.append(padded)
    new_biases = np.full((len(hidden) + 1, width), np.nan)
    for row, at, step in zip(new_biases, memory.bias_begins, [*share[2:], share[1]], strict=True):
        updated[at : at + len(step)] -= rate * step
        row[: len(step)] = updated[at : at + len(step)] * OUTPUT_SCALE
    return {
        "parameters": updated,
        "halves": new[0][:features, :width],
        "further_halves": np.array([each[:width, :width] for each in new[1:-1]]).reshape(-1, width, width),
        "by_class": new[-1][:width, :CLASSES].T,
        "by_unit": new[-1][:width, :CLASSES],
        "biases": new_biases,
        "totals": totals + with_totals * block_totals[:shares].sum(axis=0),
    }


def images_product(
    layout: Layout, images: Bits, weights: Bits, sums: Bits, batch: int, features: int, width: int
) -> Outputs:
    rows = from_chunks(images.reshape(-1, 256), layout.rows, by_columns=False).view(np.float16).astype(np.float64)
    return {"sums": rows[:batch] @ scaled_down(from_chunks(weights, features))}


def update_by_products(
    layout: Layout,
    memory: ParameterMemory,
    images: Bits,
    outputs: Bits,
    dsums: Bits,
    batch: int,
    features: int,
    gradient_scale: float,
    **others: Any,
) -> Outputs:
    def summed(chunks: Bits) -> Array:
        numbers: Array = from_chunks(chunks, layout.rows).view(np.float16).astype(np.float64).sum(axis=-3)
        return numbers

    lefts = [from_chunks(images.reshape(-1, 256), layout.rows, by_columns=False).view(np.float16).astype(np.float64)]
    lefts += [each / OUTPUT_SCALE for each in summed(outputs)]
    first, *later = [
        (batch > 0) * left.T @ right / gradient_scale for left, right in zip(lefts, summed(dsums), strict=True)
    ]
    low, width = layout.halves, layout.width
    gradients = np.zeros((1, features, low, width))
    gradients[0, :, 0] = first
    further = np.zeros((layout.further, low, width, low, width))
    for own, gradient in zip(further, later, strict=True):
        own[0, :, 0] = gradient
    others |= {"gradients": gradients.reshape(1, features, -1), "splits": 1, "further_splits": 1}
    others["further_gradients"] = further.reshape(-1, layout.wide, layout.wide)
    updated = update_all(layout, memory, features=features, width=width, **others)
    return updated | {name: np.nan_to_num(updated[name]) for name in ("halves", "further_halves")}
