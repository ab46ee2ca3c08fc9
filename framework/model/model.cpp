#include "framework/model/model.h"

#include "framework/options/limits.h"

namespace tessera::model {

void describe(options::Schema<ModelSizeOptions>& s) {
  using O = ModelSizeOptions;
  s.when_changed(options::Change::tensors);
  s.option("seq_length", &O::seq_length, "Length of a training sample, in tokens.")
      .when_changed(options::Change::order)
      .at_least(1)
      .at_most(options::most_places)
      .unit("tokens");
  s.option("vocab_size", &O::vocab_size, "Number of rows of the word embedding, padding included.")
      .at_least(1)
      .at_most(options::most_tokens_known)
      .alias("padded_vocab_size");
  s.option("make_vocab_size_divisible_by", &O::make_vocab_size_divisible_by,
           "The tokenizer's vocabulary size is rounded up to a multiple of this.")
      .at_least(1)
      .at_most(1048576)
      .matters_when([](const O& o) { return !o.vocab_size; }, "`vocab_size` is given");
}

Model::Boundaries Model::boundary(const TokenBatch&) const { throw BugError("this model is always one chunk"); }

std::int64_t ModelSizeOptions::padded_vocabulary(std::int64_t tokenizer_size, std::int64_t tensor_ranks) const {
  const auto multiple = make_vocab_size_divisible_by * tensor_ranks;
  return vocab_size.value_or((tokenizer_size + multiple - 1) / multiple * multiple);
}

}  // namespace tessera::model
