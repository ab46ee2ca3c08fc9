#include "framework/model/word_adapter.h"

#include <algorithm>
#include <string>
#include <utility>

#include "framework/autograd/ops/activation.h"
#include "framework/autograd/ops/embedding.h"
#include "framework/autograd/ops/linear.h"
#include "framework/autograd/ops/residual.h"
#include "framework/parallel/tensor_parallel.h"
#include "framework/parallel/tensor_parallel_ops.h"

namespace tessera::model {
namespace {

const std::string word_embedding = "embedding.word_embeddings";

}  // namespace

WordAdapter::WordAdapter(const nn::AdapterForm& form, const nn::Parameter& table, const nn::TensorRank& tensor)
    : Module(word_embedding),
      vocabulary_(table.global_shape[0]),
      tensor_(tensor),
      a_(&declare("lora_A.weight", ParameterRole::matrix, {form.rank, vocabulary_}, form.a_init,
                  tensor.part(1, vocabulary_, "rows of the word embedding"))),
      b_(&declare("lora_B.weight", ParameterRole::matrix, {table.global_shape[1], form.rank}, form.b_init)),
      scale_(form.scale),
      rows_{{0, 0, table.global_shape[1]}},
      factors_{{&a_->leaf, &b_->leaf, form.scale, rows_}},
      norms_(table.leaf, parallel::sum_of_ranks(tensor, word_embedding), nn::NormsOf::columns) {
  if (form.magnitudes) add_magnitudes(table);
}

void WordAdapter::add_magnitudes(const nn::Parameter& table) {
  auto& m = declare("lora_magnitude.weight", ParameterRole::magnitude, {table.global_shape[1]}, nn::Init::zeros());
  m.derive = [this](kernels::Threads& threads, const parallel::ProcessGroups* groups, std::span<float> values) {
    Arena arena;
    autograd::Tape tape(arena, threads, false);
    const auto norms = norms_.norms(tape, factors_, groups);
    std::copy_n(autograd::Tape::floats(norms).begin(), values.size(), values.begin());
  };
  magnitudes_.push_back({&m.leaf, rows_});
}

autograd::Var WordAdapter::add_to(autograd::Var x, std::span<const std::int32_t> tokens, const nn::Pass& pass,
                                  std::optional<std::int64_t> padding) const {
  auto columns = autograd::embedded_columns(x.tape(), {pass.B, pass.T}, tokens, a_->leaf, vocabulary_,
                                            vocabulary_ / tensor_.ranks * tensor_.rank, padding.value_or(-1));
  if (!tensor_.whole()) {
    constexpr auto who = "adapter of the embedding";
    const auto& group = parallel::tensor_group(pass, tensor_);
    columns = tensor_.sequence_parallel ? parallel::reduce_scatter_to_sequence_region(columns, group, who)
                                        : parallel::reduce_from_tensor_region(std::move(columns), group, who);
  }
  auto more = autograd::scaled(autograd::linear(columns, b_->leaf, nullptr), scale_);
  auto sum = autograd::dropout_add(std::move(more), x, {});
  if (magnitudes_.empty()) return sum;
  auto norms = norms_.norms(sum.tape(), factors_, pass.groups);
  return autograd::scale_by_magnitudes(std::move(sum), magnitudes_, std::move(norms), nullptr);
}

std::unique_ptr<WordAdapter> make_word_adapter(const nn::AdapterPlan* plan, const nn::Parameter& table,
                                               const nn::TensorRank& tensor) {
  if (!plan) return nullptr;
  const auto forms = plan->adapters_of(word_embedding, table.global_shape[0], {});
  return forms.empty() ? nullptr : std::make_unique<WordAdapter>(forms[0], table, tensor);
}

}  // namespace tessera::model
