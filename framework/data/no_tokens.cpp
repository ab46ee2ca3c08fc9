#include "framework/data/no_tokens.h"

#include <algorithm>

namespace tessera::data {

void NoTokens::read(std::int64_t, const SampleView& out) const {
  std::fill(out.tokens.begin(), out.tokens.end(), 0);
  std::fill(out.labels.begin(), out.labels.end(), -1);
  std::fill(out.loss_mask.begin(), out.loss_mask.end(), 0.0F);
  for (std::size_t i = 0; i < out.positions.size(); ++i)
    out.positions[i] = static_cast<std::int32_t>(i % static_cast<std::size_t>(out.seq_length));
  std::fill(out.document_start.begin(), out.document_start.end(), 0);
}

}  // namespace tessera::data
