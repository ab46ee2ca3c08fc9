#include "framework/recipe/memory.h"

#include <algorithm>
#include <limits>

#include "framework/autograd/ops/vocabulary_loss.h"
#include "framework/base/memory_limit.h"
#include "framework/data/batch_loader.h"
#include "framework/data/gpt/gpt_index.h"
#include "framework/model/layer_sizes.h"
#include "framework/nn/attention_layer.h"
#include "framework/recipe/build.h"

namespace tessera::recipe {
namespace {

/// Products and sums in double: exact where they matter, and without overflow.
std::int64_t whole(double bytes) {
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  return bytes < static_cast<double>(most) ? static_cast<std::int64_t>(bytes) : most;
}

/// Where the choices of tokens fall: nowhere on this rank if others have experts too, evenly, or all on this rank.
enum class Routing { least, balanced, worst };

/// What the ranks of one stage keep of a forward pass until its backward pass.
class Kept {
 public:
  Kept(const Recipe& recipe, const model::GptOptions& gpt)
      : recipe_(recipe), gpt_(gpt), types_(model::precision(recipe.half, recipe.precision)) {}

  /// At least the input of each layer, its queries, keys and values, and the input of its activation; of layers that
  /// are computed again, the input of each group.
  double bytes(const parallel::LayerPlan& plan, std::int64_t stage, Routing routing) const {
    double sum = 0;
    for (const auto& chunk : plan.stage(stage)) sum += of_chunk(plan, chunk, routing);
    return sum;
  }
  double logits() const {
    const auto rows = static_cast<double>(autograd::logit_rows(whole(tokens()), vocabulary_rows()));
    return rows * static_cast<double>(vocabulary_rows()) * sizeof(float);
  }

 private:
  double tokens() const {
    return static_cast<double>(recipe_.batch.batch_size) * static_cast<double>(recipe_.size.seq_length) /
           static_cast<double>(recipe_.parallel.context_parallel_size);
  }
  double tensor_ranks() const { return static_cast<double>(recipe_.parallel.tensor_model_parallel_size); }
  std::int64_t vocabulary_rows() const {
    const auto tokenizer = recipe_.tokenizer.make();
    return std::max<std::int64_t>(1,
                                  vocabulary(recipe_, tokenizer.get()) / recipe_.parallel.tensor_model_parallel_size);
  }

  double layer_input() const {
    const auto here = recipe_.parallel.sequence_parallel ? tokens() / tensor_ranks() : tokens();
    return here * static_cast<double>(gpt_.hidden_size) * static_cast<double>(size_of(types_.residual));
  }
  double inside_layer(std::int64_t layer, Routing routing) const {
    const nn::TensorRank tensor{0, static_cast<int>(recipe_.parallel.tensor_model_parallel_size)};
    const auto here = nn::heads_of_rank(gpt_.num_attention_heads, gpt_.groups(), tensor);
    const auto qkv = gpt_.multi_latent_attention
                         ? kept_of_latent_attention()
                         : static_cast<double>(here.heads + 2 * here.groups) * static_cast<double>(gpt_.channels());
    const bool mixture = model::has_experts(gpt_, recipe_.moe, layer);
    const auto feed_forward = mixture ? kept_of_experts(routing) : kept_of_dense(gpt_.inner());
    const bool again = mixture ? recipe_.moe.moe_layer_recompute || gpt_.recomputes(model::RecomputedModule::moe)
                               : gpt_.recomputes(model::RecomputedModule::mlp);
    return (tokens() * qkv + (again ? 0 : feed_forward)) * static_cast<double>(size_of(types_.compute));
  }

  /// Elements before the activation of a dense network, of all tokens.
  double kept_of_dense(std::int64_t inner) const {
    return tokens() * static_cast<double>(inner) * (nn::is_gated(gpt_.feed_forward()) ? 2 : 1) / tensor_ranks();
  }

  /// The same of a mixture of experts: of each row of an expert here, and of all tokens in the shared expert. Rows that
  /// came from other ranks are kept too.
  double kept_of_experts(Routing routing) const {
    const auto sizes = model::expert_sizes(gpt_, recipe_.moe);
    const auto sharers = static_cast<double>(recipe_.parallel.sharers_of_expert());
    const auto wide = static_cast<double>(sizes.inner) * (nn::is_gated(gpt_.feed_forward()) ? 2 : 1) / sharers;
    const bool exchanged = sharers > 1 || recipe_.parallel.expert_model_parallel_size > 1;
    const auto width = wide + (exchanged ? static_cast<double>(sizes.hidden) : 0);
    return expert_rows(sizes, routing) * width + kept_of_dense(sizes.shared_inner);
  }

  /// Rows of all experts of this rank: choices of the tokens of the ranks that have every expert once.
  double expert_rows(const nn::ExpertSizes& sizes, Routing routing) const {
    const auto divided = static_cast<double>(recipe_.parallel.expert_model_parallel_size);
    const auto chosen = static_cast<double>(sizes.rule.topk),
               experts = static_cast<double>(sizes.rule.experts) / divided;
    const auto own = recipe_.parallel.sequence_parallel ? tokens() / tensor_ranks() : tokens();
    const auto group = own * static_cast<double>(recipe_.parallel.sharers_of_expert()) * divided;
    double most = group * std::min(chosen, experts), least = divided > 1 ? 0 : group * chosen;
    if (sizes.capacity_factor > 0) {
      const auto whole_batch = recipe_.batch.batch_size * recipe_.size.seq_length;
      const auto room = static_cast<double>(kernels::expert_capacity(whole_batch, sizes.rule.topk, sizes.rule.experts,
                                                                     sizes.capacity_factor)) *
                        std::max(group / static_cast<double>(whole_batch), 1.0);
      most = std::min(most, room * experts);
      least = std::min(least, room * chosen);
    }
    if (routing == Routing::balanced) return std::min(group * chosen / divided, most);
    return routing == Routing::worst ? most : least;
  }

  /// Per token. Recomputed up-projections leave at least the rotary key, of all tokens on every rank, and the
  /// compressed vectors, which sequence parallelism divides.
  double kept_of_latent_attention() const {
    if (!gpt_.recomputes(model::RecomputedModule::mla_up_proj))
      return static_cast<double>(gpt_.latent_width()) / tensor_ranks();
    const auto compressed = static_cast<double>(gpt_.q_lora_rank.value_or(0) + gpt_.kv_lora_rank);
    return compressed / (recipe_.parallel.sequence_parallel ? tensor_ranks() : 1) +
           static_cast<double>(gpt_.qk_pos_emb_head_dim);
  }

  double of_chunk(const parallel::LayerPlan& plan, const parallel::Chunk& chunk, Routing routing) const {
    std::vector<std::int64_t> computed;
    for (auto layer = chunk.first_layer; layer < chunk.end_layer(); ++layer)
      if (std::find(plan.noop_layers().begin(), plan.noop_layers().end(), layer) == plan.noop_layers().end())
        computed.push_back(layer);
    const auto layers = static_cast<double>(computed.size());
    double again = 0, groups = 0;
    if (chunk.recompute) {
      again = groups = std::min(static_cast<double>(chunk.recompute->layers), layers);
    } else if (gpt_.recompute_granularity == model::Recomputation::full) {
      const auto count = std::min(static_cast<double>(*gpt_.recompute_num_layers), layers);
      const bool block = *gpt_.recompute_method == model::RecomputedLayers::block;
      again = block ? count : layers;
      groups = block ? count : layers / std::max(count, 1.0);
    }
    double sum = groups * layer_input();
    for (auto at = static_cast<std::size_t>(again); at < computed.size(); ++at)
      sum += layer_input() + inside_layer(computed[at], routing);
    return sum;
  }

  const Recipe& recipe_;
  const model::GptOptions& gpt_;
  model::Precision types_;
};

double in_flight(const LayoutFigures& layout, std::int64_t stage) {
  if (layout.shape.chunks > 1) return 1;
  return static_cast<double>(std::min(layout.shape.micro_batches, layout.shape.stages - stage));
}

/// Orders of samples, the batch that a step uses and those that are read ahead.
double data_bytes(const Recipe& recipe, const LayoutFigures& layout, std::int64_t stage) {
  constexpr double bytes_of_token = 20;  // token, label, position, document, weight
  const auto batches = 1 + recipe.batch.num_workers * data::BatchLoader::batches_ahead_of_worker;
  double sum = bytes_of_token * static_cast<double>(batches) * static_cast<double>(recipe.batch.batch_size) *
               static_cast<double>(recipe.size.seq_length);
  if (!needs_tokens(layout.plan, stage)) return sum;
  const bool indexed = recipe.dataset.type == "gpt" || recipe.dataset.type == "mock";
  if (!indexed || recipe.training.epochs) return sum;
  const auto ranks = layout.mesh.sizes().data;
  const auto asked = data::samples_asked(recipe.iterations(ranks), recipe.batch_sizes(ranks).global,
                                         recipe.training.eval_interval, recipe.training.eval_iters);
  const double samples =
      recipe.batch.in_samples() ? static_cast<double>(*recipe.batch.train_samples) : static_cast<double>(asked.train);
  return sum + samples * static_cast<double>(data::index_bytes(1));
}

}  // namespace

std::int64_t MemoryNeed::bytes() const {
  double sum = 0;
  for (const auto& part : parts) sum += static_cast<double>(part.bytes);
  return whole(sum);
}

std::string text_of(const MemoryNeed& need) {
  const auto largest = std::max_element(need.parts.begin(), need.parts.end(),
                                        [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
  std::string all = in_binary_units(static_cast<double>(need.bytes())) + " at least";
  for (auto part = need.parts.begin(); part != need.parts.end(); ++part)
    if (part->bytes > 0)
      all += text(part == need.parts.begin() ? ": " : ", ", part->name, " ",
                  in_binary_units(static_cast<double>(part->bytes)), part == largest ? " (the largest part)" : "");
  return all;
}

std::vector<MemoryNeed> memory_by_stage(const Recipe& recipe, const LayoutFigures& layout) {
  std::vector<MemoryNeed> all(static_cast<std::size_t>(layout.plan.stages()));
  const auto* gpt = recipe.model.options<model::GptOptions>();
  for (const auto& rank : layout.ranks) {
    auto& need = all[static_cast<std::size_t>(rank.place.pipeline)];
    if (!need.parts.empty()) continue;
    const auto stage = rank.place.pipeline;
    need.parts = {{"weights", rank.state.weights},
                  {"gradients", rank.state.gradients},
                  {"optimizer state", rank.state.optimizer}};
    if (gpt) {
      const Kept kept(recipe, *gpt);
      const auto activations = [&](Routing routing) {
        return whole(kept.bytes(layout.plan, stage, routing) * in_flight(layout, stage));
      };
      need.parts.push_back({"activations", activations(Routing::least)});
      if (recipe.experts() > 0) {
        need.balanced_activations = activations(Routing::balanced);
        need.worst_activations = activations(Routing::worst);
      }
      if (layout.plan.stage(stage).back().loss) need.parts.push_back({"logits", whole(kept.logits())});
      if (gpt->has_rotary())
        need.parts.push_back({"position tables", nn::RotaryEmbedding::bytes(
                                                     gpt->rotated_channels(),
                                                     gpt->max_position_embeddings.value_or(recipe.size.seq_length)) *
                                                     static_cast<std::int64_t>(layout.plan.stage(stage).size())});
    }
    need.parts.push_back({"data", whole(data_bytes(recipe, layout, stage))});
  }
  return all;
}

}  // namespace tessera::recipe
