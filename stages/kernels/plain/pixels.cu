// Images in float32, as the step reads them, from the bytes in which they are kept.

// expand_pixels: images = pixels / 256, exact in float32.
//   pixels   (count,)   u8   in
//   images   (count,)   f32  out
// Kind:   copy.
// Launch: 1-D, at least count threads in all.
// Needs:  any architecture; count <= 2^30.
// Order:  elementwise; repeats bit for bit.
extern "C" __global__ void expand_pixels(const unsigned char* pixels, float* images, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) images[i] = static_cast<float>(pixels[i]) * (1.0f / 256.0f);
}
