#include "framework/model/model.h"

namespace tessera {

void describe(Schema<ModelSizeOptions>& s) {
  using O = ModelSizeOptions;
  s.option("seq_length", &O::seq_length, "Tokens of one training sample.").at_least(1).unit("tokens");
  s.option("vocab_size", &O::vocab_size,
           "Rows of the embedding, padding included; null: the tokenizer's size rounded up.")
      .at_least(1)
      .alias("padded_vocab_size");
  s.option("make_vocab_size_divisible_by", &O::make_vocab_size_divisible_by,
           "The tokenizer's size is rounded up to a multiple of this.")
      .at_least(1);
}

Model::Boundary Model::boundary(const TokenBatch&) const { throw BugError("this model is always one chunk"); }

std::int64_t ModelSizeOptions::padded_vocabulary(std::int64_t tokenizer_size, std::int64_t tensor_ranks) const {
  const auto multiple = make_vocab_size_divisible_by * tensor_ranks;
  return vocab_size.value_or((tokenizer_size + multiple - 1) / multiple * multiple);
}

}  // namespace tessera
