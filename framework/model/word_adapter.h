#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "framework/nn/adapter.h"
#include "framework/nn/layers.h"

namespace tessera::model {

/// The low-rank adapter of a word embedding. Parameters:
///
///   embedding.word_embeddings.lora_A.weight   [rank, vocabulary]   sharded like the rows of the table
///   embedding.word_embeddings.lora_B.weight   [hidden, rank]       whole on each rank
class WordAdapter final : public nn::Module {
 public:
  WordAdapter(const nn::AdapterForm& form, std::int64_t vocabulary, std::int64_t hidden, const nn::TensorRank& tensor);

  /// x + scale * (the columns of A for the tokens) B^T for embedded tokens x [B, T, hidden]. `padding`: a token whose
  /// row gets no gradient. Ranks exchange the columns, which are shorter than the rows of x.
  autograd::Var add_to(autograd::Var x, std::span<const std::int32_t> tokens, const nn::Pass& pass,
                       std::optional<std::int64_t> padding) const;

 private:
  std::int64_t vocabulary_;
  nn::TensorRank tensor_;
  nn::Parameter *a_, *b_;
  double scale_;
};

/// The adapter that `plan` gives the word embedding; null: none, or no plan.
std::unique_ptr<WordAdapter> make_word_adapter(const nn::AdapterPlan* plan, std::int64_t vocabulary,
                                               std::int64_t hidden, const nn::TensorRank& tensor);

}  // namespace tessera::model
