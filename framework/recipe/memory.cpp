#include "framework/recipe/memory.h"

#include <algorithm>
#include <limits>

#include "framework/base/memory_limit.h"
#include "framework/data/batch_loader.h"
#include "framework/gpt/gpt_index.h"
#include "framework/parallel/context_options.h"
#include "framework/recipe/build.h"
#include "framework/recipe/open_data.h"
#include "framework/recipe/rehearsal.h"
#include "framework/training/state/frozen_weights.h"

namespace tessera::recipe {
namespace {

/// Products and sums are computed in double: exact for realistic sizes, and without overflow.
std::int64_t whole(double bytes) {
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  return bytes < static_cast<double>(most) ? static_cast<std::int64_t>(bytes) : most;
}

/// Adds the weights of the reference model on a rank of the stage.
void add_reference(const Recipe& recipe, const LayoutFigures& layout, const RankFigures& rank, MemoryNeed& need) {
  auto place = rank.place;
  place.data = 0;
  const auto groups =
      parallel::ProcessGroups::unconnected(layout.mesh, place, recipe.query_groups(), recipe.embedding_stage());
  const auto chunks =
      build_reference_stage(recipe, vocabulary(recipe, recipe.tokenizer.make().get()), layout.plan, place.pipeline,
                            groups.tensor_rank(recipe.parallel.sequence_parallel),
                            parallel::context_layout(recipe.parallel, groups.context.rank()), groups.expert_rank());
  const auto folder = recipe.reference_folder();
  const auto source = folder ? mapped_source(recipe, *folder) : nullptr;
  auto& part = need.parts.emplace_back(MemoryNeed::Part{"reference model", 0});
  std::int64_t in_files = 0;
  for (const auto& chunk : chunks) {
    part.bytes += training::FrozenWeights::bytes_of(chunk->parameters());
    if (!source) continue;
    const bool foreign = recipe.formats.of(source->folder()) != nullptr;
    const auto mapped = training::FrozenWeights::mappable(chunk->parameters(), *source, {.laid_out = foreign});
    part.bytes -= mapped.reserved;
    need.mapped += mapped.reserved, in_files += mapped.in_files;
  }
  const bool same_pages = folder && folder == recipe.training.load_checkpoint;
  need.in_files = same_pages ? std::max(need.in_files, in_files) : need.in_files + in_files;
}

/// What a thread has of a pixel of the picture that it decodes: three levels, and copies of some rows. 4 to 5 were
/// measured.
constexpr double bytes_of_decoded_pixel = 5;

/// The sample indices, the batch that a step uses, the batches that are read ahead, and the pictures that are decoded.
double data_bytes(const Recipe& recipe, const LayoutFigures& layout, std::int64_t stage) {
  const auto batches = 1 + recipe.batch.num_workers * data::BatchLoader::batches_ahead_of_worker;
  const bool reads = needs_tokens(layout.plan, stage);
  const auto fields = reads ? recipe.registries->datasets.fields(recipe.dataset) : token_fields();
  const double rows = static_cast<double>(recipe.rows_per_sample());
  const double kept = recipe.needs_reference() ? static_cast<double>(layout.shape.micro_batches) : 0;
  double sum =
      (static_cast<double>(batches) + kept) * rows * bytes_of(fields, recipe.batch.batch_size, recipe.size.seq_length);
  if (!reads) return sum;
  if (const auto image = foreseen_image(recipe)) {
    const auto side = static_cast<double>(recipe.architecture->vision()->patch_size);
    const auto pixels = static_cast<double>((*image)[1]) * static_cast<double>((*image)[2]) * side * side;
    sum += static_cast<double>(std::max<std::int64_t>(recipe.batch.num_workers, 1)) * pixels * bytes_of_decoded_pixel;
  }
  const bool indexed = recipe.dataset.type == "gpt" || recipe.dataset.type == "mock";
  if (!indexed || recipe.training.epochs) return sum;
  const auto ranks = layout.mesh.sizes().data;
  const auto asked = data::samples_asked(recipe.iterations(ranks), recipe.batch_sizes(ranks).global,
                                         recipe.training.eval_interval, recipe.training.evaluation_steps());
  const double samples =
      recipe.batch.in_samples() ? static_cast<double>(*recipe.batch.train_samples) : static_cast<double>(asked.train);
  return sum + samples * static_cast<double>(gpt::index_bytes(1));
}

/// Memory of a process beside what its model and data need: buffers of its threads, allocator, libraries. See
/// docs/performance.md for what was measured.
constexpr std::int64_t process_bytes = std::int64_t{12} << 20;
const std::string process_part = "process";

}  // namespace

std::int64_t MemoryNeed::bytes() const {
  double sum = 0;
  for (const auto& part : parts) sum += static_cast<double>(part.bytes);
  return whole(sum);
}

std::string text_of(const MemoryNeed& need) {
  // No option changes what the process itself takes.
  const auto of_recipe = [](const auto& part) { return part.name == process_part ? 0 : part.bytes; };
  const auto largest = std::max_element(need.parts.begin(), need.parts.end(),
                                        [&](const auto& a, const auto& b) { return of_recipe(a) < of_recipe(b); });
  std::string all = in_binary_units(static_cast<double>(need.bytes())) + (need.complete ? "" : " at least");
  for (auto part = need.parts.begin(); part != need.parts.end(); ++part)
    if (part->bytes > 0)
      all += text(part == need.parts.begin() ? ": " : ", ", part->name, " ",
                  in_binary_units(static_cast<double>(part->bytes)), part == largest ? " (the largest part)" : "");
  return all;
}

MemoryNeed memory_of_stage(const Recipe& recipe, const LayoutFigures& layout, std::int64_t stage) {
  using Spread = autograd::AssumedChoices::Spread;
  const RankFigures* rank = nullptr;  // of the ranks of the stage, the first of those that need most
  for (const auto& one : layout.ranks)
    if (one.place.pipeline == stage && (!rank || rank->state.all() < one.state.all())) rank = &one;
  must(rank != nullptr, "every stage has ranks");
  MemoryNeed need;
  need.parts = {{"weights", rank->state.weights},
                {"gradients", rank->state.gradients},
                {"optimizer state", rank->state.optimizer}};
  const auto rehearsed = [&](Spread spread) { return rehearsed_peak(recipe, layout, stage, spread); };
  try {
    if (!recipe.architecture->towers())
      throw Error(text("model_type ", recipe.model.type, " has activations that only a run can tell"));
    const auto peak = rehearsed(Spread::balanced);
    need.complete = peak.exact;
    need.parts.insert(need.parts.end(),
                      {{"activations", peak.activations}, {"workspace", peak.workspace}, {"messages", peak.messages}});
    const auto& sizes = layout.mesh.sizes();
    if (recipe.experts() > 0 && sizes.expert * sizes.sharers_of_expert() > 1) {
      const auto elsewhere = rehearsed(Spread::elsewhere).activations, here = rehearsed(Spread::here).activations;
      if (here != elsewhere) {  // else the stage has no experts
        need.activations_by_choices = {std::min(elsewhere, peak.activations), std::max(here, peak.activations)};
        need.complete = false;
      }
    }
  } catch (const Error& error) {
    need.complete = false;
    need.not_foreseen = error.what();
    need.parts.resize(3);
    need.parts.insert(need.parts.end(), {{"activations", 0}, {"workspace", 0}, {"messages", 0}});
  }
  if (const auto bytes = recipe.architecture->table_bytes(); bytes > 0)
    need.parts.push_back({"position tables", bytes * static_cast<std::int64_t>(layout.plan.stage(stage).size())});
  need.mapped = rank->state.mapped, need.in_files = rank->state.in_files;
  if (recipe.needs_reference()) add_reference(recipe, layout, *rank, need);
  need.parts.push_back({"data", whole(data_bytes(recipe, layout, stage))});
  if (recipe.training.async_save && recipe.training.save_interval.value_or(0) > 0)
    need.parts.push_back({"copies while saving (async_save)", rank->saved});
  need.parts.push_back({process_part, process_bytes});
  return need;
}

std::vector<MemoryNeed> memory_by_stage(const Recipe& recipe, const LayoutFigures& layout) {
  std::vector<MemoryNeed> all;
  for (std::int64_t stage = 0; stage < layout.plan.stages(); ++stage)
    all.push_back(memory_of_stage(recipe, layout, stage));
  return all;
}

}  // namespace tessera::recipe
