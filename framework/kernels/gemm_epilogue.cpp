#include "framework/kernels/gemm_epilogue.h"

#include <cmath>

namespace tessera {

void activate(Activation act, const float* x, float* y, std::int64_t size) {
  for (std::int64_t i = 0; i < size; ++i) {
    const float v = x[i];
    if (act == Activation::gelu_tanh)
      y[i] = 0.5F * v * (1 + std::tanh(0.7978845608F * (v + 0.044715F * v * v * v)));
    else
      y[i] = 0.5F * v * (1 + std::erf(v * 0.7071067812F));
  }
}

}  // namespace tessera
