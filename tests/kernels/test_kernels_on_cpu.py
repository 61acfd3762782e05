"""Every plain kernel, executed on the CPU, against its NumPy double; a kernel made wrong must be caught."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from common.cuda.dependent_launch import waits
from tests.cpu_cuda.kernel_sources import KERNELS_FOLDER, Kernel, copy_changed, cuda_files, executed_sources, kernels_in
from tests.cpu_cuda.shim import LIMIT_S, KernelFault, Shim, Toolchain, requires_compiler
from tests.kernels import doubles
from tests.kernels.cases import Case, all_cases
from tests.seeds import SEED

DEPENDENT = {source for source in cuda_files(KERNELS_FOLDER) if waits(source)}
PLAIN = [kernel for kernel in kernels_in(KERNELS_FOLDER) if kernel.is_plain]

# Of a kernel that is compiled for each case: those in which all defects below show, which are tried first.
TELLING = {
    "last_layer": (8, 5, 4, 9),
    "ring_back": (9, 34, 24),
    "hidden_head": (10, 4),
    "hidden_layers": (7, 8),
    "update_all": (12,),
    "images_product": (6, 7),
    "update_by_products": (10, 3),
    "cluster_ahead": (1,),
    "fleet_columns": (1, 0),
    "grid_messages": (1, 2),
    "divided_batch": (1, 3),
    "divided_hidden": (1, 2),
    "fleet_grid": (2,),
    "streaming_epoch": (1, 0, 3),
    "persistent_cluster": (1, 4),
    "cluster_mlp": (6,),
}

pytestmark = requires_compiler


@cache
def cases_of(kernel: str) -> list[Case]:
    """Those that a CPU executes, with the same numbers in every run; `LADDER_TEST_SEED` draws others."""
    return [case for case in all_cases(kernel, np.random.default_rng(SEED)) if not case.on_gpu_alone]


def launch(shim: Shim, case: Case, order: int, *, dependent: bool = False) -> dict[str, np.ndarray | float]:
    """The arguments as a launch leaves them."""
    args = case.copy_args()
    shim.launch(
        case.kernel,
        case.grid,
        case.block,
        *args.values(),
        seed=order,
        dependent=dependent,
        macros=case.macros,
        limit_s=LIMIT_S if case.cluster is None else 5 * LIMIT_S,  # for the threads of several clusters
        **case.how,
    )
    return args


def assert_same_bits(first: dict[str, np.ndarray | float], other: dict[str, np.ndarray | float], case: Case) -> None:
    for name, value in first.items():
        assert np.asarray(value).tobytes() == np.asarray(other[name]).tobytes(), f"{case}: {name} varies"


@pytest.mark.parametrize("kernel", PLAIN, ids=lambda kernel: kernel.name)
def test_kernel_does_what_its_double_does(kernel: Kernel, shim: Shim) -> None:
    # One for dependent launches touches no tensor before its wait, and computes the same.
    dependent = kernel.source in DEPENDENT
    for case in cases_of(kernel.name):
        assert list(case.args) == [parameter.name for parameter in kernel.parameters]
        first, second = launch(shim, case, order=1), launch(shim, case, order=2, dependent=dependent)
        assert case.mismatch(first) == ""
        if kernel.claims_repeatable:
            assert_same_bits(first, second, case)
        else:
            assert case.mismatch(second) == ""


def test_no_double_is_left_of_a_kernel_that_is_gone() -> None:
    functions = {name for name, value in vars(doubles).items() if getattr(value, "__module__", "") == doubles.__name__}
    names = {name for name in functions if not name.startswith("_")}  # others are helpers
    assert names <= {kernel.name for kernel in kernels_in(KERNELS_FOLDER)}


def test_a_kernel_without_cases_is_an_error() -> None:
    with pytest.raises(LookupError, match="forgotten_kernel: has no cases"):
        cases_of("forgotten_kernel")


@pytest.mark.parametrize(
    ("kernel", "right", "wrong"),
    [
        ("gemm_naive", "i < k", "i < k - 1"),
        ("gemm_naive", "a[i * m + row]", "a[i * k + row]"),
        ("gemm_naive", "beta == 0.0f ? alpha * sum : ", ""),
        ("gemm_naive", "alpha * sum + beta", "1.001f * alpha * sum + beta"),
        ("gemm_naive", "row >= m", "row > m"),
        ("add_bias", "bias[i % cols]", "bias[i / cols]"),
        ("add_bias", "i < rows * cols", "i <= rows * cols"),
        ("relu", "output[i] < 0.0f", "!(output[i] >= 0.0f)"),
        ("relu_backward", "output[i] <= 0.0f", "output[i] < 0.0f"),
        ("bias_gradient", "row < rows;", "row < rows - 1;"),
        ("bias_gradient", "__syncthreads();", ""),
        ("bias_update", "i < BIAS_ROWS", "i < BIAS_ROWS - 1"),
        ("bias_update", "-= learning_rate * sum", "= -learning_rate * sum"),
        ("bias_update", "learning_rate * sum", "learning_rate * sum * 1.001f"),
        ("bias_update", "threadIdx.y == 0 && col < cols", "col < cols"),
        ("softmax", "expf(logits[c] - largest)", "expf(logits[c])"),
        ("add_biases", "blockIdx.y * stride", "0"),
        ("sgd_updates", "learning_rates[blockIdx.y]", "learning_rates[0]"),
        ("fleet_columns", "first[0] + first[2]", "first[0]"),
        ("fleet_columns", "of_chunk[1][first + i][image % HALF_EDGE] = halves.low", "of_chunk[1][0][0] = 0"),
        ("fleet_columns", "== label ? DLOGIT_SCALE", "== label ? 1.001f * DLOGIT_SCALE"),
        ("fleet_columns", "epoch.learning_rates[network]", "epoch.learning_rates[0]"),
        ("fleet_columns", "chunk % 2 * 2 + 1] = halves.low", "chunk % 2 * 2 + 1] = 0"),
        ("fleet_columns", "[slot_of(image)]", "[image]"),
        ("fleet_columns", "mbarrier_wait_parity(are_in, step % 2);", ""),
        ("softmax_xent_backward", "blockIdx.y * rows * classes + i", "i"),
        ("softmax_xent_backward", "? 1.0f : 0.0f", "? 1.001f : 0.0f"),
        ("softmax_xent_totals", "__syncthreads();", ""),
        ("softmax_xent_totals", "z[c] > z[best]", "z[c] >= z[best]"),
        ("softmax_xent_totals", "totals[2 * blockIdx.y] += losses[0]", "totals[2 * blockIdx.y] = losses[0]"),
        ("softmax_xent_totals", "(blockIdx.y * rows + row) * classes", "row * classes"),
        ("softmax_xent_totals", "logf(sum) + ", ""),
        ("softmax_xent", "sum += expf(z[c] - largest)", "sum += expf(z[c])"),
        ("softmax_xent", "fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, flip))", "fmaxf(largest, largest)"),
        ("softmax_xent", "sum += __shfl_xor_sync(ALL_LANES, sum, flip)", "sum += sum"),
        ("softmax_xent", "first += gridDim.x * warps * ROWS", "first += gridDim.x * warps * ROWS + 1"),
        ("softmax_xent", " & lanes_of_row", ""),
        ("softmax_xent", "exists && own == 0", "own == 0"),
        ("softmax_xent", "expf(z[c] - largest) / sum - target", "expf(z[c] - largest) / sum - 1.001f * target"),
        ("softmax_xent", "z[c] == z[label] && c < label", "false"),
        ("softmax_xent", "z[c] == z[label] && c < label", "z[c] == z[label]"),
        ("softmax_xent", "+ (largest - z[label])", "- z[label]"),
        ("softmax_xent", "__syncthreads();", ""),
        ("softmax_xent", "lane < warps ? losses[lane]", "lane < warps ? losses[0]"),
        ("softmax_xent", "totals[1] += correct;", "totals[1] = correct;"),
        ("last_layer", "min(row + HALF_WARP, last)", "min(row, last)"),
        ("last_layer", "i += 4 * (THREADS / HALF_WARP)", "i += 4 * (THREADS / HALF_WARP + 1)"),
        ("last_layer", "sum_of_blocks(sums + at) + bias", "sum_of_blocks(sums + at)"),
        ("last_layer", "expf(logit - largest) : 0.0f", "expf(logit - largest) : 1.0f"),
        ("last_layer", "logit == wanted && lane < label", "false"),
        ("last_layer", "            label = layer.labels[", "            // label = layer.labels["),
        ("last_layer", "row < layer.batch; row += WARP) {", "row < WARP; row += WARP) {"),
        ("last_layer", "of_row > 0.0f ? sum : 0.0f", "sum"),
        ("last_layer", "input += parts * apart;", "input += apart;"),
        ("last_layer", "half, parts, k, c)", "half, 1, k, c)"),
        ("last_layer", "            __syncthreads();  // before the scratch", "            // before the scratch"),
        ("last_layer", "__syncthreads();  // for a single block", "// for a single block"),
        ("last_layer", "cp_async_wait_all();", ""),
        ("last_layer", "own(max(0, min(most, layer.fan_in - first)))", "own(most)"),
        ("last_layer", "        barrier_cluster_aligned();\n        for", "        for"),
        ("last_layer", "does nothing\n        barrier_cluster_aligned();", "does nothing"),
        ("last_layer", "b < blocks && lane", "b < 1 && lane"),
        ("last_layer", "begin + b < blocks ? of_block[b]", "begin + b < blocks - 1 ? of_block[b]"),
        ("last_layer", "if (rank > 0) return;", ""),
        ("last_layer", "row += WARPS * blocks) {", "row += WARPS) {"),
        ("last_layer", "weights[at] - ", "weights[at] + "),
        ("tile_product_f32", "begin += 4 * t;", "begin += 3 * t;"),
        ("tile_product_f32", "kth < k && at < extent", "at < extent"),
        ("tile_product_f32", "at < extent) to", "at <= extent) to"),
        ("tile_product_f32", "inner % 4 == 0 && ", ""),
        ("tile_product_f32", "first + 8 * FREE <= extent", "true"),
        ("tile_product_f32", "sums[i][j][1] += of_a[i]", "sums[i][j][1] += 1.001f * of_a[i]"),
        ("tile_product_f32", "            __syncwarp();\n        }", "        }"),
        ("tile_product_f32", "    __syncthreads();\n}", "}"),
        ("tile_product_f32", "begin += shares * K_STEP", "begin += (shares + 1) * K_STEP"),
        ("tile_product_f32", "if (i < warps) sum = sum", "if (i < warps - 1) sum = sum"),
        ("tile_product_f32", "col % 8 == 0) product.mask", "col % 16 == 0) product.mask"),
        ("tile_product_f32", "passed | next << 4", "passed"),
        ("tile_product_f32", "value <= 0.0f ?", "value < -1.0f ?"),
        ("tile_product_f32", "+ col / 8] >> col % 8", "+ col / 8] >> row % 8"),
        ("tile_product_f32", "row == product.m && left > 0) write_quad", "row == product.m) write_quad"),
        ("tile_product_f32", "value = value + float4{beta", "value = float4{beta"),
        ("tile_product_f32", "round == 1 ? ahead[1]", "round == 1 ? ahead[0]"),
        ("tile_product_f32", "product.n % 4 == 0 &&", ""),
        ("tile_product_tf32", "i % 2 + e % 2 * 2", "e % 2 + i % 2 * 2"),
        ("tile_product_tf32", "b[e / 2][j][e % 2]", "b[e % 2][j][e / 2]"),
        ("tile_product_bf16", "pair_of(from_b[j][2], from_b[j][3])", "pair_of(from_b[j][3], from_b[j][2])"),
        ("tile_product_f16", "SCALED && TRANS_A", "SCALED && TRANS_B"),
        ("tile_product_split", "low.multiply_into(product, high);", ";"),
        ("tile_product_u8", "high.multiply_into(product, low);", ""),
        ("tile_product_u8", "1.0f / 256", "1.0f / 255"),
        ("streamed_forward_split", "product.k - from, product.n -", "PIECE_INPUTS, product.n -"),
        ("streamed_forward_split", "product.k - from, product.n -", "product.k - from - 1, product.n -"),
        ("streamed_forward_split", "product.k, product.m,", "product.k, MOST_ROWS,"),
        ("streamed_forward_split", "j % 4][j / 4]", "j / 2][j % 2]"),
        ("streamed_forward_split", "begin += apart", "begin += apart + WIDTH"),
        ("streamed_forward_split", "WIDTH, MOST_ROWS, 4}", "WIDTH, MOST_ROWS, 3}"),
        ("streamed_back_split", "__syncthreads();  // all copies of", "// all copies of"),
        ("streamed_back_split", "__syncthreads();  // all copies and", "// all copies and"),
        ("streamed_back_split", "cp_async_wait_group<COUNT - 2>", "cp_async_wait_group<COUNT - 1>"),
        ("streamed_back_split", "place == 0 ? COUNT - 1 : place - 1", "place"),
        ("streamed_back_split", "sizes.fan_in - tile.first_col, cols", "INPUTS, cols"),
        ("streamed_back_split", "(col < cols_there ? rows_there : 0)", "rows_there"),
        ("streamed_back_split", "s = place / HALVES", "s = 0"),
        ("streamed_back_bf16", "half = place % HALVES", "half = 0"),
        ("streamed_back_bf16", "            barrier_cluster_aligned();\n        }", "        }"),
        ("streamed_back_bf16", "if (blocks > 1) barrier_cluster_aligned();", ""),
        ("streamed_back_split", "blocks > 1 ? sum_of_blocks(own, blocks)", "false ? sum_of_blocks(own, blocks)"),
        ("streamed_forward_bf16", "if (i < blocks) sum = sum + parts[i];", "if (i < 2) sum = sum + parts[i];"),
        ("streamed_back_bf16", "if (NEEDED || first_input == 0)", "if (NEEDED)"),
        ("streamed_back_bf16", "    if constexpr (!NEEDED) return;", ""),
        ("streamed_back_bf16", "if (from + at < sizes.fan_out) back", "back"),
        ("ring_forward", "mbarrier_wait_parity(ring.full[s], parity);", ""),
        ("ring_forward", "8 * (EIGHTS * part + i)", "8 * i"),
        ("ring_forward", "share * K_STEP >= layer.rows(row_tile)", "false"),
        ("ring_forward", "one >> 16 | (other & 0xffff0000u)", "(one & 0xffffu) | other << 16"),
        ("ring_back", "cp_async_bulk_wait_group_read<LATER>();", ""),
        ("ring_back", "mbarrier_wait_parity(ring.ready, 0);", ""),
        ("ring_back", "mbarrier_wait_parity(ring.done[s], n / Ring::SLOTS % 2);", ""),
        ("ring_back", "cp_async_bulk_wait_all();", ""),
        ("ring_back", "8 * EIGHTS * rows + row_of_8(g)", "row_of_8(g)"),
        ("ring_back", "factors.inputs, part * ROWS_AT_ONCE)", "factors.inputs)"),
        ("ring_back", "sum += of_rows[i][e];", ""),
        ("ring_back", "one + 0x8000u >> 16", "one >> 16"),
        ("ring_back", "part == 1 ? low : high", "high"),
        ("hidden_head", "logit * (1.0f / (OUTPUT_SCALE * WEIGHT_SCALE)) + own_bias", "logit * (1.0f / 1024.0f)"),
        ("hidden_head", "x = relu_of(z[pair].x + bias[2 * pair])", "x = z[pair].x + bias[2 * pair]"),
        ("hidden_head", "z[pair].y + bias[2 * pair + 1]", "z[pair].y + bias[2 * pair]"),
        ("hidden_head", "k == 0 ? run.x : run.z", "run.x"),
        ("hidden_head", "2 * j + g % 2", "2 * j"),
        ("hidden_head", "first + own_row < batch, classes", "true, classes"),
        ("hidden_head", "logit == wanted && c < label", "false"),
        ("hidden_head", "+ (largest - wanted)", "- wanted"),
        ("hidden_head", "label = following < batch ? labels[following] : 0", "label = 0"),
        ("hidden_head", "passed & 0x7fff0000u", "passed & 0x7fffu"),
        ("hidden_head", "cvt_bf16x2(x, y)", "cvt_f16x2(x, y)"),
        ("hidden_head", "if (row >= batch) continue;", ""),
        ("hidden_head", "flip = 4; flip < WARP", "flip = 4; flip < WARP / 2"),
        ("hidden_head", "other < ROWS; ++other) sum", "other < ROWS - 1; ++other) sum"),
        ("hidden_head", "}\n        __syncthreads();\n#pragma", "}\n#pragma"),
        ("hidden_head", "correct);\n        __syncthreads();", "correct);"),
        ("hidden_head", "loss += memory.losses[row]", "loss = memory.losses[row]"),
        ("hidden_layers", "is_there = g + 8 * i < rows", "is_there = true"),
        ("hidden_layers", "+ (i % 2 == 0 ? two.x : two.y)", "+ two.x"),
        ("hidden_layers", "relu_of(number * scale", "(number * scale"),
        ("hidden_layers", "BACK ? &b[half][other][k] : &b[half][k][other]", "&b[half][k][other]"),
        ("hidden_layers", "0x7fff7fffu & 0x80008000u", "0x7fff7fffu & 0x8000u"),
        ("hidden_layers", "cvt_bf16x2(x, y) +", "cvt_f16x2(x, y) +"),
        ("hidden_layers", "    unsigned bits = 0;\n    __syncthreads();", "    unsigned bits = 0;"),
        ("hidden_layers", "    }\n    __syncthreads();\n    return bits;", "    }\n    return bits;"),
        ("hidden_layers", "if (row >= batch) continue;", ""),
        ("hidden_layers", "is_upper ? own[i] : own[i + count], 4 * count", "own[i], 4 * count"),
        ("hidden_layers", "sums[g / 2 * 8 + 2 * t + g % 2] +=", "sums[g / 2 * 8 + 2 * t + g % 2] ="),
        ("hidden_layers", "logits[j] == wanted && class_of(j) < labels[i]", "false"),
        ("hidden_layers", "+ (largest - wanted)", "- wanted"),
        ("hidden_layers", "edge < TILES * EDGES", "edge < EDGES"),
        ("hidden_layers", "at < end; at += next", "at < next; at += next"),
        ("hidden_layers", "cp_async_wait_all();", ""),
        ("hidden_layers", "cp_async_wait_group<FURTHER + 1>();", ""),
        ("hidden_layers", "cp_async_wait_group<FURTHER>();", ""),
        ("hidden_layers", "if constexpr (BY_ENGINE) mbarrier_wait_parity(memory.arrived[l], 0);", ""),
        ("hidden_layers", "        __syncthreads();\n        fetch(next", "        fetch(next"),
        ("hidden_layers", "round += TILES * apart", "round += 2 * TILES * apart"),
        ("update_all", "part < splits;", "part < splits - 1;"),
        ("update_all", "sums[0] + (HALVES == 2 ? sums[HALVES - 1] : 0.0f)", "sums[0]"),
        ("update_all", "if (IS_FURTHER && HALVES == 2) sums", "if (false) sums"),
        ("update_all", "share = warp; share", "share = warp + 1; share"),
        ("update_all", "    __syncthreads();", ""),
        ("update_all", "by_class[(half * CLASSES + c)", "by_class[(half * CLASSES + c / 2)"),
        ("update_all", "by_unit[(half * width + unit)", "by_unit[(half * layer(LAST).inputs + unit)"),
        ("update_all", "before - rate * sum", "before + rate * sum"),
        ("update_all", "biases[found.index * width", "biases[found.index * layer(0).units"),
        ("update_all", "found.at >= before", "found.at > before"),
        ("update_all", "further_gradients + further * further_splits", "further_gradients + further"),
        ("update_all", "if (with_totals && blockIdx.x == 0", "if (blockIdx.x == 0"),
        ("update_all", "weight - rate *", "weight - 1.001f * rate *"),
        (
            "images_product",
            "count * static_cast<int>(threadIdx.x / WARP + 1) / warps",
            "count * static_cast<int>(threadIdx.x / WARP + 1) / warps - 1",
        ),
        ("images_product", "mbarrier_wait_parity(arrived[warp], 0);", ""),
        ("images_product", "blockIdx.x * R + i) * chunks", "blockIdx.x * R) * chunks"),
        ("images_product", "i / C * (width / EDGE) + ", ""),
        ("images_product", "i >= rows) continue;", "true) continue;"),
        ("images_product", "if (row >= batch) continue;", ""),
        (
            "images_product",
            "    __syncthreads();\n#pragma unroll\n    for (int i = 0; i < (2",
            "#pragma unroll\n    for (int i = 0; i < (2",
        ),
        ("images_product", "other < W; ++other)", "other < W - 1; ++other)"),
        ("update_by_products", "mbarrier_wait_parity(arrived[warp], 0);", ""),
        ("update_by_products", "TRANSPOSED ? matrix % 2 * 2 + matrix / 2 : matrix", "matrix"),
        ("update_by_products", "index * HALVES + i / O) * WIDE", "index * HALVES) * WIDE"),
        ("update_by_products", "(part.index - 1) * HALVES + half) * WIDE", "(part.index - 1) * HALVES) * WIDE"),
        ("update_by_products", "multiply_chunk(c[i][o], a, b[0][o])", ";"),
        ("update_by_products", "1.0f : 1.0f / OUTPUT_SCALE", "1.0f : 1.0f"),
        ("update_by_products", "weights[i][j][1] - by", "weights[i][j][0] - by"),
        ("update_by_products", "row < layer.inputs && column < layer.units", "row < layer.inputs"),
        ("update_by_products", "if (is_second) to[1] = second;", "to[1] = second;"),
        ("update_by_products", "at - lane + next >= Shared::count()", "true"),
        ("update_by_products", "(blockIdx.x - first) * WARP + lane", "blockIdx.x * WARP + lane"),
        ("update_by_products", "if (first == 0) update_shares()", "update_shares()"),
        ("update_by_products", "own.begin + k) * (features", "own.begin) * (features"),
        ("update_by_products", "if (index >= l) layer", "if (index > l) layer"),
        ("cluster_ahead", "[begin + i][n][j] -= epoch.rate", "[begin + i][n][j] -= 1.001f * epoch.rate"),
        ("cluster_ahead", "products[i] - epoch.rate * sum", "products[i]"),
        ("cluster_ahead", "image >= epoch.batch) dlogit", "false) dlogit"),
        ("cluster_ahead", "        bar_sync(MEET, PAIRS * WARP);\n            send", "            send"),
        ("cluster_ahead", "weights[turn][i] -= epoch.rate", "weights[turn][i] -= 1.001f * epoch.rate"),
        ("neighbour_grams", "chunk / STAGES % 2", "0"),
        ("neighbour_grams", "mbarrier_wait_parity(fetched[chunk % STAGES], chunk / STAGES % 2);", ""),
        ("neighbour_grams", "first_pair + i >= pairs || ", ""),
        ("neighbour_grams", "raise_flag(ready + step, epoch)", "raise_flag(ready + step, epoch - 1)"),
        ("persistent_cluster", "bar_sync(WEIGHTS_ARE_IN + parity, (BACKWARD_WARPS + FORWARD_WARPS) * WARP);", ""),
        ("persistent_cluster", "mbarrier_wait_parity(shared.dlogits_are_in[step % 2], step / 2 % 2);", ""),
        ("persistent_cluster", "mbarrier_wait_parity(shared.logits_are_in[parity], step / 2 % 2);", ""),
        ("persistent_cluster", "partial_logits[parity][", "partial_logits[0]["),
        ("persistent_cluster", "weights[i / 4][i % 4] -= rate", "weights[i / 4][i % 4] -= 1.001f * rate"),
        ("persistent_cluster", "logits[i] -= rate", "logits[i] -= 1.001f * rate"),
        ("persistent_cluster", "IS_PADDED && labels[i] < 0 ?", "false ?"),
        ("persistent_cluster", "lane / 4 + HALF_EDGE == label) loss", "false) loss"),
        ("persistent_cluster", "best == label", "best >= label"),
        ("cluster_mlp", "if (step > 0) barrier_cluster_wait();", ""),
        ("cluster_mlp", "receive(block.barriers.parts[LAST][0], bytes_of_parts(LAST));", ""),
        ("cluster_mlp", "-= rate * sum", "-= 1.001f * rate * sum"),
        ("cluster_mlp", "wanted < 0 ? 0.0f :", ""),
        ("cluster_mlp", "reader != block.rank && head", "head"),
        ("divided_batch", "weights[r][i] -= rate * sums", "weights[r][i] -= 1.001f * rate * sums"),
        ("divided_batch", "lane() / 2 + i * SHARERS < SOURCES", "lane() / 2 + i * SHARERS < SOURCES - 1"),
        ("divided_batch", "two[0] + two[1]", "two[0]"),
        ("divided_batch", "label < 0 ? 0.0f", "false ? 0.0f"),
        ("divided_batch", "to[DLOGIT_NUMBERS / 2] = halves.low", "to[DLOGIT_NUMBERS / 2] = 0"),
        ("divided_batch", "if (logits[e] == largest) best", "if (logits[e] >= 0.0f) best"),
        ("divided_batch", "(number / SLOTS & 1) ^ 1", "1"),
        ("divided_hidden", "[i % 4] -= rate * sum;", "[i % 4] -= 1.1f * rate * sum;"),
        ("divided_hidden", "first + i < SOURCES", "first + i < SOURCES - 1"),
        ("divided_hidden", "group == 0 ? bias[0]", "true ? bias[0]"),
        ("divided_hidden", "outputs & 0x7fffu ? sums", "true ? sums"),
        ("divided_hidden", "c < EDGE ? upper", "true ? upper"),
        ("divided_hidden", "(i * OWN_EDGES + 2 * tile + n)", "(2 * tile + n)"),
        ("divided_hidden", "send(Round{round.number + 1})", "send(Round{round.number})"),
        ("divided_hidden", "(number / SLOTS & 1) ^ 1", "1"),
        ("grid_messages", "weights[n][i] -= rate * sums", "weights[n][i] -= 1.001f * rate * sums"),
        ("grid_messages", "stored_edges(FROM) / 2, false", "stored_edges(FROM) / 2 - 1, false"),
        ("grid_messages", "CLASSES && is_there ? dlogit", "CLASSES ? dlogit"),
        ("grid_messages", "(number / SLOTS & 1) ^ 1", "1"),
        ("grid_messages", "numbers[0] = 0.0f;", "numbers[0] = numbers[0];"),
        ("grid_messages", "upper[0] | upper[low / 2]", "upper[0]"),
        ("grid_messages", "bias[0] -= rate * sum.x", "bias[0] -= rate * sum.y"),
        ("streaming_epoch", "- rate * gradient[j][2 * half])", "- 1.1f * rate * gradient[j][2 * half])"),
        ("streaming_epoch", "one + 0x8000u >> 16", "one >> 16"),
        ("streaming_epoch", "threadIdx.x] -= rate * sum", "threadIdx.x] -= 1.1f * rate * sum"),
        ("streaming_epoch", "masters[i][n] -= rate", "masters[i][n] -= 1.1f * rate"),
        ("streaming_epoch", "bias[c] -= rate", "bias[c] -= 1.1f * rate"),
        ("streaming_epoch", "at < BATCH ? gradient", "true ? gradient"),
        ("streaming_epoch", "(number / 2 & 1) ^ 1", "1"),
        ("streaming_epoch", "if (!IS_FORWARD) mask(words, own_mask)", ""),
        ("streaming_epoch", "IS_FORWARD ? stored_at(row) : to", "to"),
        ("streaming_epoch", "mbarrier_wait_parity(ring.full[turn.slot], turn.parity);", ""),
        ("streaming_epoch", "cvt_bf16x2(-rate * sums[j][2 * half], -rate", "cvt_bf16x2(0.0f * sums[j][2 * half], 0.0f"),
        ("streaming_epoch", "        if (ADDS_KEPT) {", "        if (false) {"),
        ("streaming_epoch", "(n * TEAMS + of_team)", "of_team"),
        ("streaming_epoch", "step - pending + n", "step - 1"),
        ("streaming_epoch", "if (updates) mbarrier_wait_parity(*ring.spent, phases++ & 1);", ""),
        ("fleet_grid", "learning_rates[network]", "learning_rates[0]"),
        ("fleet_grid", "workspace + network * room", "workspace"),
        ("fleet_grid", "2 * gridDim.x * network", "0"),
        ("fleet_grid", "* plan.rows + first)", "* plan.rows)"),
        ("sgd_update", "-= learning_rate", "+= learning_rate"),
        ("peer_send", "end; unit +=", "end - 1; unit +="),
        ("peer_send", "bits >> 1 & 1", "0"),
        ("peer_send", "unit = begin +", "unit ="),
        ("peer_sums", "split < splits", "split < splits - 1"),
        ("peer_sums", "other < shares; other += GROUPS", "other < shares - 1; other += GROUPS"),
        ("peer_sums", "other = 1; other < GROUPS", "other = 2; other < GROUPS"),
        ("peer_sums", "        __syncthreads();", ""),
        ("peer_sums", "tagged(part * own.w, tag)", "tagged(own.w, tag)"),
        ("peer_sums", "at = begin + static_cast<long long>(other)", "at = begin + static_cast<long long>(rank)"),
        ("peer_sums", "block_totals[own] = total", "block_totals[own] += total"),
        ("peer_update", "min(MOST, (units", "min(MOST - 1, (units"),
        ("peer_update", "if (sends) send", "send"),
        ("peer_update", "other == rank", "false"),
        ("peer_update", "learning_rate * sums[i].w", "1.001f * learning_rate * sums[i].w"),
        ("peer_update", "round.end(rounds);", ""),
        ("peer_send", "post(to + unit,", "post(to + units - 1 - unit,"),
        ("expand_pixels", "1.0f / 256.0f", "1.0f / 255.0f"),
        ("expand_pixels", "(pixels[i])", "(static_cast<signed char>(pixels[i]))"),
        ("expand_pixels", "i < count", "i < count - 1"),
        ("sgd_update", "learning_rate * gradient[i]", "learning_rate * gradient[i] * 1.001f"),
    ],
)
def test_a_kernel_made_wrong_is_caught(
    kernel: str, right: str, wrong: str, tmp_path: Path, toolchain: Toolchain
) -> None:
    (source,) = {plain.source for plain in PLAIN if plain.name == kernel}
    assert any(right in file.read_text() for file in executed_sources(source))
    shim = Shim([copy_changed(source, tmp_path, lambda text: text.replace(right, wrong))], toolchain)

    def is_right(case: Case) -> bool:
        try:
            return case.mismatch(launch(shim, case, order=1)) == ""
        except KernelFault:
            return False

    cases = cases_of(kernel)
    telling = [cases[at] for at in TELLING.get(kernel, ())]
    assert not all(is_right(case) for case in (*telling, *cases))
