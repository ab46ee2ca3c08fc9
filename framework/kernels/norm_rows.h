#pragma once

#include <cstddef>

namespace tessera::kernels {

// One row of a norm, as norm.cpp passes it to the code of the chosen instruction set. Internal to this component;
// norm.h has the formulas.

/// Arguments of the forward pass over one row of `width` floats. Owns nothing.
struct NormRow {
  std::size_t width;
  const float *x, *gain, *bias;  // bias may be null: no bias
  double eps;
  float gain_offset;
  float* y;
};

/// Statistics of a row that the backward pass needs: its mean (0 for rmsnorm), and inv = 1 / sqrt(variance + eps), for
/// rmsnorm 1 / sqrt(mean square + eps).
struct NormOfRow {
  float mean, inv;
};

/// Arguments of the backward pass over one row.
struct NormRowBackward {
  std::size_t width;
  const float *dy, *x, *gain;
  float gain_offset, mean, inv;
  float* dx;
  bool add;              // dx is added to, not written
  float *dgain, *dbias;  // [width], added to; dbias may be null
};

}  // namespace tessera::kernels
