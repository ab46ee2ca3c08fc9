#include "framework/recipe/open_data.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <utility>

#include "framework/comm/together.h"
#include "framework/files/input_file.h"
#include "framework/log/log.h"
#include "framework/multimodal/mllm_options.h"
#include "framework/multimodal/row_encoder.h"
#include "framework/parallel/context_options.h"
#include "framework/recipe/build.h"
#include "framework/recipe/rules.h"

namespace tessera::recipe {
namespace {

const log::Logger logger("data");

/// Only the first rank reports progress: the other ranks wait for the same files.
data::TellLine teller(const parallel::ProcessGroups& processes, log::LogLevel level) {
  if (processes.world.rank() > 0) return {};
  return [level](const std::string& line) { logger.write(level, "data: " + line); };
}

training::RunData open_data_of_rank(const Recipe& recipe, const parallel::ProcessGroups& processes) {
  return open_data(recipe, processes.replicas(), teller(processes, log::LogLevel::info),
                   teller(processes, log::LogLevel::warning));
}

/// Memory is planned with the fields that the type declares. Whether a message tells the length of a micro-batch, a
/// stage without data knows for all splits together.
void must_be_as_declared(const Recipe& recipe, const data::DataSplits& splits) {
  const auto declared = recipe.registries->datasets.fields(recipe.dataset);
  const auto check = [&](const data::Dataset* data) {
    if (data && (data->fields() != declared || data->rows_per_sample() != recipe.rows_per_sample() ||
                 data->extents_vary() != splits.train->extents_vary()))
      throw ConfigError(text("dataset_config.dataset_type: samples of ", recipe.dataset.type,
                             " have other fields or rows than the type declares (DatasetRegistry::declare_fields), or "
                             "their lengths vary in some splits only"));
  };
  for (const auto* data : {splits.train.get(), splits.valid.get(), splits.test.get()}) check(data);
  for (const auto& set : splits.valid_sets) check(set.data.get());
}

void must_train(const data::DataSplits& data) {
  if (!data.train)
    throw ConfigError(
        "dataset_config: there is no training data; give data_path or train_data_path with samples, or a split whose "
        "first weight is above 0. `tessera data preprocess` leaves out rows that reach its --seq-length");
}

std::unique_ptr<data::Sampler> order_of(const Recipe& recipe, const data::Dataset* data, std::int64_t replicas) {
  if (!data) return nullptr;
  return recipe.sampler.make({data->samples(), recipe.batch.batch_size, recipe.replicas_of_order.value_or(replicas)});
}

std::unique_ptr<data::Sampler> validation_order(const Recipe& recipe, const data::Dataset* data, std::int64_t replicas,
                                                std::int64_t iterations) {
  if (data && recipe.training.full_validation) return data::repeated(data::single_pass(*data), data->samples());
  auto order = order_of(recipe, data, replicas);
  // A run that was resumed with fewer evaluations to come has consumed samples beyond those that are prepared for it.
  // Data that has too few from the beginning is an error.
  const auto step = recipe.batch_sizes(replicas).global;
  const auto& run = recipe.training;
  const auto asked = data::samples_asked(iterations, step, run.eval_interval, run.evaluation_steps()).valid;
  if (!order || recipe.sampler.type != "single" || asked < 1 || data->samples() < asked) return order;
  return data::repeated(std::move(order), std::max<std::int64_t>(data->samples() / step, 1) *
                                              std::min<std::int64_t>(step, data->samples()));
}

/// A last step within rampup_batch_size may exceed train_samples, and so what was prepared.
std::unique_ptr<data::Sampler> training_order(const Recipe& recipe, const data::Dataset& data, std::int64_t replicas) {
  auto order = order_of(recipe, &data, replicas);
  if (!recipe.ramp.rampup_batch_size || !recipe.batch.in_samples() || recipe.sampler.type != "single" ||
      data.samples() < *recipe.batch.train_samples)
    return order;
  return data::repeated(std::move(order), data.samples());
}

void count_epoch(const Recipe& recipe, std::int64_t replicas, training::RunData& data) {
  const auto step = recipe.batch_sizes(replicas).global;
  data.epoch_samples = data.splits->train->samples() / step * step;
}

/// What a stage without data must know about the data; stages with data send it as one line of text.
struct DataFacts {
  std::array<std::int64_t, 3> samples = {-1, -1, -1};  ///< of train, valid and test; -1: there is no such split
  std::vector<std::pair<std::string, std::int64_t>> valid_sets;  ///< names and samples
  bool one_document_each = true, lengths_vary = false;

  static DataFacts of(const data::DataSplits& splits) {
    DataFacts facts;
    const std::array all = {splits.train.get(), splits.valid.get(), splits.test.get()};
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!all[i]) continue;
      facts.samples[i] = all[i]->samples();
      facts.add(*all[i]);
    }
    for (const auto& set : splits.valid_sets) {
      facts.valid_sets.emplace_back(set.name, set.data->samples());
      facts.add(*set.data);
    }
    return facts;
  }
  void add(const data::Dataset& data) {
    one_document_each = one_document_each && data.one_document_each();
    lengths_vary = lengths_vary || data.extents_vary();
  }
  std::string line() const {
    auto words = text(samples[0], " ", samples[1], " ", samples[2], " ", one_document_each, " ", lengths_vary);
    for (const auto& [name, count] : valid_sets) words += text(" ", name, " ", count);
    return words;
  }
  static DataFacts read(const std::string& line) {
    DataFacts facts;
    std::istringstream words(line);
    words >> facts.samples[0] >> facts.samples[1] >> facts.samples[2] >> facts.one_document_each >> facts.lengths_vary;
    must(!words.fail(), "a stage with data sends its numbers of samples");
    std::string name;
    for (std::int64_t count = 0; words >> name >> count;) facts.valid_sets.emplace_back(name, count);
    return facts;
  }
};

/// The parts of RunData that need no data.
training::RunData without_data(const Recipe& recipe, std::int64_t replicas) {
  training::RunData data;
  data.batch = recipe.batch;
  data.batch_plan = schedule::BatchPlan(recipe.ramp, recipe.batch_sizes(replicas));
  data.tokenizer = recipe.tokenizer.make();
  return data;
}

/// Replaces the bad samples that the recipe names, and those that the run will find, in every split.
void put_in_quarantine(const Recipe& recipe, training::RunData& data) {
  data.quarantines = std::make_unique<data::Quarantines>();
  const auto replace = [&](const std::string& name, const data::Dataset* split, std::unique_ptr<data::Sampler>& order) {
    if (split) order = data::replacing(std::move(order), data.quarantines->add_split(name, *split));
  };
  const auto& splits = *data.splits;
  replace("train", splits.train.get(), data.train_order);
  replace("valid", splits.valid.get(), data.valid_order);
  replace("test", splits.test.get(), data.test_order);
  for (std::size_t i = 0; i < splits.valid_sets.size(); ++i)
    replace("valid-" + splits.valid_sets[i].name, splits.valid_sets[i].data.get(), data.valid_set_orders[i]);
  if (const auto& file = recipe.batch.quarantine_file)
    data.quarantines->add_known(data::read_quarantine(files::read_input(*file, "quarantine of samples"), *file));
}

/// Replaces the data on a stage that needs none.
training::RunData without_tokens(const Recipe& recipe, std::int64_t replicas, const DataFacts& facts) {
  auto data = without_data(recipe, replicas);
  data.iterations =
      recipe.training.epochs ? epoch_iterations(recipe, facts.samples[0], replicas) : recipe.iterations(replicas);
  data.splits = std::make_unique<data::DataSplits>();
  const auto put = [&](std::size_t split, std::unique_ptr<data::Dataset>& set, std::unique_ptr<data::Sampler>& order) {
    if (facts.samples[split] < 0) return;
    set = std::make_unique<data::NoTokens>(facts.samples[split], recipe.size.seq_length, facts.lengths_vary,
                                           recipe.rows_per_sample());
    order = std::make_unique<data::AnyOrder>();
  };
  put(0, data.splits->train, data.train_order);
  put(1, data.splits->valid, data.valid_order);
  put(2, data.splits->test, data.test_order);
  for (const auto& [name, count] : facts.valid_sets) {
    data.splits->valid_sets.push_back(
        {name, std::make_unique<data::NoTokens>(count, recipe.size.seq_length, facts.lengths_vary,
                                                recipe.rows_per_sample())});
    data.valid_set_orders.push_back(std::make_unique<data::AnyOrder>());
  }
  if (recipe.training.epochs) count_epoch(recipe, replicas, data);
  data.has_tokens = false;
  put_in_quarantine(recipe, data);
  return data;
}

}  // namespace

void must_share_placeholders(const model::VisionOptions& tower, const multimodal::MllmOptions& data,
                             const tokenizers::Tokenizer& tokenizer) {
  const auto tokens = multimodal::visual_tokens(tokenizer, data.prompt_template, data.spatial_merge_size);
  std::string wrong;
  const auto compare = [&](const char* option, std::int64_t of_tower, std::int32_t of_data) {
    if (of_tower == of_data) return;
    wrong += text(wrong.empty() ? "" : "; ", "vision_config.", option, " is ", of_tower,
                  ", but in the tokenizer the placeholder is ", of_data);
  };
  if (data.images) compare("image_token_id", tower.image_token_id, tokens.image);
  if (data.videos) compare("video_token_id", tower.video_token_id, tokens.video);
  if (!wrong.empty())
    throw ConfigError(text(wrong, "; give the numbers of the tokenizer, or the tokenizer of the model"));
}

training::RunData open_data(const Recipe& recipe, std::int64_t replicas, const data::TellLine& tell,
                            const data::TellLine& warn) {
  auto data = without_data(recipe, replicas);
  const auto* images = recipe.dataset.options<multimodal::MllmOptions>();
  const auto* tower = recipe.architecture->vision();
  if (images && tower && data.tokenizer) must_share_placeholders(*tower, *images, *data.tokenizer);
  if (const auto& begins_with = recipe.training.load_checkpoint; images && begins_with && warn)
    if (const auto line = multimodal::other_limits(*images, *begins_with); !line.empty()) warn(line);
  const auto make = [&](std::int64_t steps, bool train, bool others) {
    auto parts = data_parts(recipe, data.tokenizer.get(), steps, static_cast<int>(replicas));
    if (!train) parts.asked.train = 0;
    if (!others) parts.asked.valid = parts.asked.test = 0;
    parts.tell = tell;
    parts.warn = warn;
    return recipe.dataset.make(std::move(parts));
  };
  data.iterations = recipe.iterations(replicas);
  if (recipe.training
          .epochs) {  // the length of the run follows from the training split, and from that the other splits
    auto train = make(1, true, false);
    must_train(*train);
    data.iterations = epoch_iterations(recipe, train->train->samples(), replicas);
    require_learning_rate(recipe, data.iterations, replicas);
    data.splits = make(data.iterations, false, true);
    data.splits->train = std::move(train->train);
  } else {
    data.splits = make(data.iterations, true, true);
  }
  must_train(*data.splits);
  must_be_as_declared(recipe, *data.splits);
  data.train_order = training_order(recipe, *data.splits->train, replicas);
  data.valid_order = validation_order(recipe, data.splits->valid.get(), replicas, data.iterations);
  data.test_order = order_of(recipe, data.splits->test.get(), replicas);
  for (const auto& set : data.splits->valid_sets)
    data.valid_set_orders.push_back(validation_order(recipe, set.data.get(), replicas, data.iterations));
  if (recipe.training.epochs) {
    count_epoch(recipe, replicas, data);
    if (recipe.sampler.type == "single")
      data.train_order = data::repeated(std::move(data.train_order), data.epoch_samples);
  }
  put_in_quarantine(recipe, data);
  return data;
}

bool needs_tokens(const parallel::LayerPlan& plan, std::int64_t stage) {
  const auto& chunks = plan.stage(stage);
  return std::any_of(chunks.begin(), chunks.end(), [&](const parallel::ModelChunk& chunk) {
    return chunk.embedding || chunk.loss || plan.towers().begins_tower(chunk);
  });
}

training::RunData open_data(const Recipe& recipe, const parallel::ProcessGroups& processes) {
  constexpr auto who = "opening the data";
  const auto plan = recipe.layer_plan();
  const auto replicas = processes.replicas();
  const bool needed = needs_tokens(plan, processes.place.pipeline);
  training::RunData data;
  comm::together(processes.world, who, [&] {
    if (needed) data = open_data_of_rank(recipe, processes);
  });
  bool all_need = true;
  for (std::int64_t stage = 0; stage < plan.stages(); ++stage) all_need = all_need && needs_tokens(plan, stage);
  if (all_need) return data;
  // The first stage has the embedding, so there is an answer.
  const auto all = processes.pipeline.all_gather(needed ? DataFacts::of(*data.splits).line() : "", who);
  const auto facts = DataFacts::read(all.front());
  comm::together(processes.world, who, [&] {
    if (needed) return;
    data = facts.one_document_each ? without_tokens(recipe, replicas, facts) : open_data_of_rank(recipe, processes);
  });
  return data;
}

parallel::Mesh mesh_of(const Recipe& recipe, std::int64_t ranks) {
  const auto& o = recipe.parallel;
  parallel::MeshSizes sizes;
  sizes.tensor = static_cast<int>(o.tensor_model_parallel_size);
  sizes.context = static_cast<int>(o.context_parallel_size);
  sizes.context_heads = static_cast<int>(parallel::context_heads(o));
  sizes.pipeline = static_cast<int>(o.pipeline_model_parallel_size);
  sizes.data = static_cast<int>(parallel::data_parallel_ranks(o, ranks));
  if (recipe.experts() > 0) {
    sizes.expert = static_cast<int>(o.expert_model_parallel_size);
    sizes.expert_tensor = static_cast<int>(o.sharers_of_expert());
  }
  sizes.pipeline_before_data = o.use_tp_pp_dp_mapping;
  return parallel::Mesh(sizes);
}

StepSamples samples_of_step(const Recipe& recipe, std::int64_t replicas, std::int64_t iterations, std::int64_t step) {
  if (step < 1 || step > iterations)
    throw ConfigError(text("step ", step, ": the run has the steps 1 to ", iterations));
  const schedule::BatchPlan plan(recipe.ramp, recipe.batch_sizes(replicas));
  StepSamples out;
  if (plan.grows())
    for (std::int64_t before = 1; before < step; ++before) out.consumed += plan.at(out.consumed).samples;
  else
    out.consumed = (step - 1) * plan.full().samples;
  const auto size = plan.at(out.consumed);
  out.samples = size.samples;
  out.micro_batches = size.micro_batches;
  const auto& skip = recipe.training.iterations_to_skip;  // counts iterations from 0
  out.skipped = std::find(skip.begin(), skip.end(), step - 1) != skip.end();
  return out;
}

}  // namespace tessera::recipe
