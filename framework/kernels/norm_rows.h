#pragma once

#include <cstddef>

namespace tessera {

// One row of a norm, as norm.cpp hands it to the code of the chosen instruction set. Internal to this room.

struct NormRow {
  std::size_t width;
  const float *x, *gain, *bias;  // bias may be null
  double eps;
  float gain_offset;
  float* y;
};

struct NormOfRow {
  float mean, inv;  // mean 0 for rmsnorm
};

struct NormRowBackward {
  std::size_t width;
  const float *dy, *x, *gain;
  float gain_offset, mean, inv;
  float* dx;
  bool add;
  float *dgain, *dbias;  // added to; dbias may be null
};

}  // namespace tessera
