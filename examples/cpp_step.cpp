// One epoch of softmax regression by SGD in float32; adds the loss and the number of correct answers to `totals`.
#include <algorithm>
#include <cmath>
#include <vector>

extern "C" void epoch(int steps, int batch, int inputs, int classes, float rate, const float* images,
                      const unsigned char* labels, float* weight, float* bias, double* totals) {
    std::vector<float> outputs(batch * classes);
    for (int step = 0; step < steps; ++step, images += batch * inputs, labels += batch) {
        for (int b = 0; b < batch; ++b) {
            float* row = &outputs[b * classes];
            std::copy_n(bias, classes, row);
            for (int i = 0; i < inputs; ++i)
                for (int c = 0; c < classes; ++c) row[c] += images[b * inputs + i] * weight[i * classes + c];

            const float* best = std::max_element(row, row + classes);
            const float most = *best;
            totals[0] += most - row[labels[b]];
            totals[1] += best - row == labels[b];
            float sum = 0;
            for (int c = 0; c < classes; ++c) sum += row[c] = std::exp(row[c] - most);
            totals[0] += std::log(double(sum));
            for (int c = 0; c < classes; ++c) row[c] = (row[c] / sum - (c == labels[b])) / batch;
        }
        for (int i = 0; i <= inputs; ++i) {  // the last row is the bias, whose input is always 1
            float* updated = i < inputs ? &weight[i * classes] : bias;
            std::vector<float> gradient(classes);  // summed first: one rounding a step, not one an image
            for (int b = 0; b < batch; ++b)
                for (int c = 0; c < classes; ++c)
                    gradient[c] += (i < inputs ? images[b * inputs + i] : 1) * outputs[b * classes + c];
            for (int c = 0; c < classes; ++c) updated[c] -= rate * gradient[c];
        }
    }
}
