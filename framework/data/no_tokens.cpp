#include "framework/data/no_tokens.h"

#include <algorithm>
#include <numeric>

namespace tessera::data {

void NoTokens::read(std::int64_t, const SampleView& out) const {
  std::fill(out.tokens.begin(), out.tokens.end(), 0);
  std::fill(out.labels.begin(), out.labels.end(), -1);
  std::fill(out.loss_mask.begin(), out.loss_mask.end(), 0.0F);
  std::iota(out.positions.begin(), out.positions.end(), 0);
  std::fill(out.document_start.begin(), out.document_start.end(), 0);
}

}  // namespace tessera::data
