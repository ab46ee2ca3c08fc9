#include "framework/recipe/layout_figures.h"

#include <map>

#include "framework/base/checked.h"
#include "framework/comm/group_buffer.h"
#include "framework/recipe/build.h"
#include "framework/recipe/rehearsal.h"
#include "framework/training/guards/state_copies.h"
#include "framework/training/guards/state_plan.h"

namespace tessera::recipe {
namespace {

/// Elements of the parameters that a token is multiplied with in a chunk, on one of its tensor-parallel ranks: the
/// matrices of its layers, of experts only the number that a token chooses, and after the last layer the output layer,
/// or the word embedding if it is tied. `active`: the number of chosen experts divided by the number of experts of
/// which this rank has elements.
double products(const std::vector<nn::Parameter*>& parameters, bool loss, double active) {
  double matrices = 0, head = 0, words = 0;
  for (const auto* parameter : parameters) {
    const auto elements = static_cast<double>(parameter->elements());
    if (parameter->role == ParameterRole::matrix) matrices += elements;
    if (parameter->role == ParameterRole::expert) matrices += elements * active;
    if (parameter->role == ParameterRole::output_layer) head += elements;
    if (parameter->role == ParameterRole::word_embedding) words += elements;
  }
  if (!loss) return matrices;
  return matrices + (head > 0 ? head : words);
}

/// `active` of products(). A rank has 1 / (expert * sharers) of all experts' elements; its tensor-parallel group
/// divides the products of each token.
double active_share(const Recipe& recipe, const parallel::MeshSizes& sizes) {
  if (recipe.experts() == 0) return 0;
  const auto held = static_cast<double>(recipe.experts()) / (sizes.expert * sizes.sharers_of_expert());
  return static_cast<double>(recipe.moe.moe_router_topk) / held / sizes.tensor;
}

/// Figures of one part of a rank's state.
struct PartFigures {
  training::StateBytes bytes;
  training::KeptSections kept;
  std::int64_t copy = 0, saved = 0;
};

/// The sizes of the state of a stage on every data-parallel rank. Their shards differ by the remainders of the buckets;
/// ranks whose shards of all buckets are equally long have equal sizes, which are computed once.
std::vector<PartFigures> state_of_data_ranks(const std::vector<nn::Parameter*>& parameters,
                                             const optim::Optimizer& optimizer, training::StateSharing sharing) {
  const auto figures = [&](const training::StateLayout& layout) {
    return PartFigures{layout.bytes(), training::kept_sections(layout, optimizer),
                       static_cast<std::int64_t>(training::copy_file_bytes(layout, optimizer)), layout.saved_bytes()};
  };
  const training::StateLayout first(parameters, &optimizer, sharing);
  std::vector<PartFigures> all(static_cast<std::size_t>(sharing.ranks), figures(first));
  if (!sharing.shards()) return all;
  std::map<std::vector<std::size_t>, PartFigures> known;
  for (sharing.rank = 0; sharing.rank < sharing.ranks; ++sharing.rank) {
    std::vector<std::size_t> shards;
    for (const auto& bucket : first.buckets()) {
      const comm::ByteRange range{0, static_cast<std::size_t>(bucket.elements.count) * sizeof(float)};
      shards.push_back(comm::GroupBuffer::share(range, sharing.rank, sharing.ranks).count);
    }
    auto found = known.find(shards);
    if (found == known.end())
      found = known.emplace(shards, figures(training::StateLayout(parameters, &optimizer, sharing))).first;
    all[static_cast<std::size_t>(sharing.rank)] = found->second;
  }
  return all;
}

/// Figures of the ranks of one stage, or of those of its ranks that have one block of experts.
struct StageFigures {
  std::int64_t parameters = 0;
  std::vector<PartFigures> state = {};    ///< of each data-parallel rank, of the dense layers
  std::vector<PartFigures> experts = {};  ///< of each rank with the same experts; empty: none are trained apart
  std::int64_t frozen = 0;                ///< bytes of frozen parameters
  training::FrozenWeights::Mapped mapped = {};
  std::size_t journal = 0;  ///< bytes of that section of a state file
};

/// `source`: from which frozen parameters are mapped; null: from none.
StageFigures figures_of(const std::vector<std::unique_ptr<model::Model>>& chunks, const Recipe& recipe,
                        const parallel::MeshSizes& sizes, const checkpoint::OpenedCheckpoint* source) {
  StageFigures out;
  out.journal = training::journal_section(model::report_extents(*chunks.front(), *recipe.objective.make()));
  std::vector<nn::Parameter*> held;
  for (const auto& chunk : chunks) std::ranges::copy(chunk->parameters(), std::back_inserter(held));
  out.frozen = training::FrozenWeights::bytes_of(held);
  if (source) out.mapped = training::FrozenWeights::mappable(held, *source, ways_of_base(recipe, *source));
  for (const auto* parameter : held)
    out.parameters = checked_sum({{"parameters", out.parameters}, {"more", parameter->elements()}});
  const auto optimizer = recipe.optimizer.make();
  for (const auto& group : training::groups_of_parameters(held, sizes)) {
    const auto sharers = group.experts ? sizes.expert_data() : sizes.context * sizes.data;
    (group.experts ? out.experts : out.state) =
        state_of_data_ranks(group.parameters, *optimizer,
                            {.ranks = sharers,
                             .distributed_optimizer = recipe.data_parallel.use_distributed_optimizer,
                             .bucket_elements = recipe.data_parallel.bucket_elements(sharers)});
  }
  return out;
}

RankFigures figures_of_rank(int rank, const parallel::Mesh& mesh, const StageFigures& stage) {
  const auto place = mesh.place_of(rank);
  const auto& dense = stage.state[static_cast<std::size_t>(place.context + mesh.sizes().context * place.data)];
  auto state = dense.bytes;
  state.weights += stage.frozen - stage.mapped.reserved;
  state.mapped = stage.mapped.reserved, state.in_files = stage.mapped.in_files;
  std::vector kept = {dense.kept};
  std::array<std::int64_t, 2> copy = {dense.copy, 0};
  auto saved = dense.saved;
  if (!stage.experts.empty()) {
    const auto& experts = stage.experts[static_cast<std::size_t>(mesh.expert_place_of(rank).data)];
    state += experts.bytes;
    kept.push_back(experts.kept);
    copy[1] = experts.copy;
    saved += experts.saved;
  }
  const auto in_memory = static_cast<std::int64_t>(training::state_file_bytes(stage.journal, kept));
  return {place, stage.parameters, state, in_memory, saved, copy};
}

}  // namespace

double LayoutFigures::bubble() const {
  return parallel::simulate(parallel::PipelineSchedule::training(shape), costs).bubble();
}

// The tensor-parallel ranks of a stage hold equally many elements of each parameter: every division among them is even
// (TensorRank::part) or gives each a copy of one key and value head; and so do the ranks that share experts. So rank 0
// of each stage stands for all, or of each block of experts that are frozen differently; a property test constructs the
// others too.
LayoutFigures layout_figures(const Recipe& recipe, std::int64_t world) {
  const auto mesh = mesh_of(recipe, world);
  const auto& sizes = mesh.sizes();
  LayoutFigures out{.mesh = mesh,
                    .plan = recipe.layer_plan(),
                    .ranks = {},
                    .shape = recipe.pipeline_shape(sizes.data),
                    .costs = {},
                    .experts = recipe.experts(),
                    .shards = {}};
  const auto rows = vocabulary(recipe, recipe.tokenizer.make().get());
  // Patterns of names can freeze the experts of one rank and not those of another.
  const int blocks = recipe.experts() > 0 && recipe.may_freeze() ? sizes.expert : 1;
  const nn::TensorRank tensor{0, sizes.tensor, recipe.parallel.sequence_parallel};
  const auto active = active_share(recipe, sizes);
  const auto& given = recipe.training.load_checkpoint;
  const bool maps = given && recipe.may_freeze() && !recipe.moe.moe_use_upcycling;
  const auto source = maps ? mapped_source(recipe, *given) : nullptr;
  std::vector<StageFigures> stages;  // [stage, block of experts]
  const auto samples = schedule::BatchPlan(recipe.ramp, recipe.batch_sizes(sizes.data)).full().samples;
  for (int i = 0; i < static_cast<int>(out.plan.stages()) * blocks; ++i) {
    const auto p = static_cast<std::int64_t>(i / blocks);
    const auto chunks =
        build_stage(recipe, rows, out.plan, p, tensor, {}, {i % blocks, sizes.expert, 0, sizes.sharers_of_expert()});
    stages.push_back(figures_of(chunks, recipe, sizes, source.get()));
    if (i % blocks > 0) continue;
    auto& costs = out.costs.emplace_back();
    auto& flops = out.flops.emplace_back(0);
    for (std::size_t c = 0; c < chunks.size(); ++c) {
      const bool loss = out.plan.at(p, static_cast<std::int64_t>(c)).loss;
      costs.push_back(products(chunks[c]->parameters(), loss, active));
      flops += foreseen_flops(recipe, *chunks[c], samples);
    }
  }
  std::vector<int> parts;
  for (int rank = 0; rank < world; ++rank) {
    const auto block = blocks > 1 ? mesh.expert_place_of(rank).expert : 0;
    const auto& stage = stages[static_cast<std::size_t>(mesh.place_of(rank).pipeline * blocks + block)];
    out.ranks.push_back(figures_of_rank(rank, mesh, stage));
    parts.push_back(stage.experts.empty() ? 1 : 2);
  }
  out.shards = training::shards_of_run(mesh, recipe.data_parallel.use_distributed_optimizer, parts);
  return out;
}

std::string layers_told(const parallel::LayerPlan& plan, std::int64_t stage) {
  std::string all;
  for (const auto& chunk : plan.stage(stage)) {
    std::string words = chunk.embedding ? "embedding" : "";
    const auto add = [&](const std::string& more) { words += (words.empty() ? "" : ", ") + more; };
    if (chunk.layers > 0) add(plan.towers().told(chunk));
    if (chunk.loss) add("loss");
    all += (all.empty() ? "" : " | ") + (words.empty() ? "none" : words);
  }
  return all;
}

}  // namespace tessera::recipe
