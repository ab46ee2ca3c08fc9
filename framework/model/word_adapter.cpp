#include "framework/model/word_adapter.h"

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

WordAdapter::WordAdapter(const nn::AdapterForm& form, std::int64_t vocabulary, std::int64_t hidden,
                         const nn::TensorRank& tensor)
    : Module(word_embedding),
      vocabulary_(vocabulary),
      tensor_(tensor),
      a_(&declare("lora_A.weight", ParameterRole::matrix, {form.rank, vocabulary}, form.a_init,
                  tensor.part(1, vocabulary, "rows of the word embedding"))),
      b_(&declare("lora_B.weight", ParameterRole::matrix, {hidden, form.rank}, form.b_init)),
      scale_(form.scale) {}

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
  return autograd::dropout_add(std::move(more), x, {});
}

std::unique_ptr<WordAdapter> make_word_adapter(const nn::AdapterPlan* plan, std::int64_t vocabulary,
                                               std::int64_t hidden, const nn::TensorRank& tensor) {
  if (!plan) return nullptr;
  const auto forms = plan->adapters_of(word_embedding, vocabulary, {});
  return forms.empty() ? nullptr : std::make_unique<WordAdapter>(forms[0], vocabulary, hidden, tensor);
}

}  // namespace tessera::model
