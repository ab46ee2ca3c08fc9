#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "framework/nn/adapter.h"
#include "framework/nn/layers.h"
#include "framework/nn/row_norms.h"

namespace tessera::model {

/// The low-rank adapter of a word embedding. Parameters:
///
///   embedding.word_embeddings.lora_A.weight   [rank, vocabulary]   sharded like the rows of the table
///   embedding.word_embeddings.lora_B.weight   [hidden, rank]       whole on each rank
///   embedding.word_embeddings.lora_magnitude.weight   [hidden]     if the form has magnitudes: first the norms of the
///                                                                  columns of the table with its adapter
class WordAdapter final : public nn::Module {
 public:
  /// `table`: the embedding, or this rank's rows of it; must outlive the adapter.
  WordAdapter(const nn::AdapterForm& form, const nn::Parameter& table, const nn::TensorRank& tensor);

  /// x + scale * (the columns of A for the tokens) B^T for embedded tokens x [B, T, hidden]; with magnitudes m, m / n
  /// times that sum, where n are the norms of the columns over the whole vocabulary, as in PEFT. `padding`: a token
  /// whose row gets no gradient. Ranks exchange the columns of A, which are shorter than the rows of x.
  autograd::Var add_to(autograd::Var x, std::span<const std::int32_t> tokens, const nn::Pass& pass,
                       std::optional<std::int64_t> padding) const;

 private:
  void add_magnitudes(const nn::Parameter& table);

  std::int64_t vocabulary_;
  nn::TensorRank tensor_;
  nn::Parameter *a_, *b_;
  double scale_;
  std::vector<kernels::RowBlock> rows_;  ///< the whole width
  std::vector<autograd::LowRankFactors> factors_;
  std::vector<autograd::Magnitudes> magnitudes_;  ///< one, or none
  nn::RowNorms norms_;
};

/// The adapter that `plan` gives the word embedding; null: none, or no plan.
std::unique_ptr<WordAdapter> make_word_adapter(const nn::AdapterPlan* plan, const nn::Parameter& table,
                                               const nn::TensorRank& tensor);

}  // namespace tessera::model
