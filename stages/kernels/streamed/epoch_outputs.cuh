// The outputs of hidden layers whose sums a block adds up: their biases, and the exchange of their sums. Takers call it.
#pragma once
#include "streamed/epoch_sums.cuh"

class OwnOutputs {
  public:
    __device__ OwnOutputs(char* memory, const Own& own)
        : biases(reinterpret_cast<float*>(memory + BIASES_AT)), masks(reinterpret_cast<unsigned char*>(memory + MASKS_AT)),
          own(own) {}

    template <bool STORES>
    __device__ void copy(float* parameters) const {
        const int a = threadIdx.x / OWN_OUTPUTS + 1, i = threadIdx.x % OWN_OUTPUTS;
        for (int activations = a; activations <= DEPTH; activations += TAKERS / OWN_OUTPUTS) {
            const int share = share_of(is_thin(activations)), at = own.rank(activations) * OWN_OUTPUTS + i;
            const int output = own.of(activations) * share + at;
            float* const stored = parameters + bias_begin(activations - 1) + output;
            float& bias = biases[(activations - 1) * OWN_OUTPUTS + i];
            const bool is_there = UNITS % (THIN * THICK * 16) == 0 || at < share && output < UNITS;
            if (!STORES) bias = is_there ? *stored : 0.0f;
            else if (is_there) *stored = bias;
        }
    }

    template <bool IS_FORWARD, bool IS_THIN>
    __device__ void add_up(const Sum<IS_THIN>& sum, int activations) const {
        sum.template add_up<IS_FORWARD>(biases + (activations - 1) * OWN_OUTPUTS, masks + (activations - 1) * OWN);
    }
    // The sums of all outputs of the share replace what `to` has.
    template <bool IS_THIN>
    __device__ void receive(const Sum<IS_THIN>& sum, char* to) {
        sum.receive(to);
        ++rounds[IS_THIN].number;
        fence_proxy_async();
        bar_sync(1, TAKERS);
    }
    template <bool IS_THIN>
    __device__ Sum<IS_THIN> sum(uint4* mail) const {
        return Sum<IS_THIN>(own, mail, rounds[IS_THIN]);
    }

    // From their gradients, which all blocks with these units have.
    __device__ void update_bias(int activations, const char* gradients, float rate) const {
        if (threadIdx.x >= OWN_OUTPUTS) return;
        float sum = 0.0f;
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; ++chunk) {
            const int output = own.rank(activations) * OWN_OUTPUTS + threadIdx.x;
            const uint4 eight = *reinterpret_cast<const uint4*>(gradients + unit_at(output, chunk));
            const unsigned words[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float2 two = two_of(words[i]);
                sum += two.x + two.y;
            }
        }
        biases[(activations - 1) * OWN_OUTPUTS + threadIdx.x] -= rate * sum;
    }

  private:
    float* const biases;
    unsigned char* const masks;
    const Own own;
    Rounds rounds[2];  // of thick sums, and of thin ones
};
