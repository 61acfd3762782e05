// The network that a kernel is compiled for. stages/large_batch/layout.py writes LAYERS: four numbers a layer.
#pragma once

#ifndef LAYERS  // 784-128-128-128-10
#define LAYERS 784, 128, 0, 134400, 128, 128, 100352, 134528, 128, 128, 116736, 134656, 128, 10, 133120, 134784
#endif

struct Layer {
    int inputs, units;
    int weights, bias;  // where they begin in parameters
};

__device__ constexpr Layer layer(int index) {
    constexpr Layer all[] = {LAYERS};
    return all[index];
}

constexpr int COUNTED[] = {LAYERS};
constexpr int LAST = sizeof COUNTED / sizeof(Layer) - 1;  // layer
constexpr int FURTHER = LAST - 1;                         // hidden layers behind the first
