#include "framework/recipe/rehearsal.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "framework/kernels/scratch.h"
#include "framework/model/vision_items.h"
#include "framework/parallel/context_options.h"
#include "framework/recipe/build.h"
#include "framework/training/step/pipeline.h"

namespace tessera::recipe {
namespace {

/// Samples of one document, with all tokens in the loss. With images each sample has foreseen_image().
class PlainBatches final : public training::BatchSource {
 public:
  PlainBatches(const Recipe& recipe, std::int64_t samples)
      : fields_(recipe.registries->datasets.fields(recipe.dataset)),
        samples_(samples),
        seq_length_(recipe.size.seq_length),
        vision_(recipe.architecture->vision()),
        image_(foreseen_image(recipe)) {
    const auto* vision = vision_;
    if (image_) features_ = (*image_)[2] / vision->spatial_merge_size;
    constexpr double most_pixel_bytes = 1 << 30;  // memory of pixels is real
    if (vision && static_cast<double>(features_ * samples) *
                          static_cast<double>(vision->merged() * vision->patch_width()) * sizeof(float) >
                      most_pixel_bytes)
      throw Error(
          text("activations are not foreseen for images of ", features_, " tokens in each of ", samples, " samples"));
    extents_.emplace(fields_, samples, seq_length_);
    read(0, *extents_);
  }
  std::int64_t samples() const override { return samples_; }
  std::int64_t seq_length() const override { return seq_length_; }
  const BatchFields& fields() const override { return fields_; }
  TokenBatch extents() const override { return extents_->view(); }
  double read(std::int64_t, Batch& batch) override {
    if (features_ > 0) put_images(batch);
    std::fill(batch.loss_mask.begin(), batch.loss_mask.end(), 1.0F);
    for (std::int64_t row = 0; row < samples_; ++row) {
      const auto positions = batch.sample(row).positions;
      for (std::size_t i = 0; i < positions.size(); ++i)
        positions[i] = static_cast<std::int32_t>(i % static_cast<std::size_t>(seq_length_));
    }
    return 0;
  }

 private:
  void put_images(Batch& batch) const {
    for (std::int64_t row = 0; row < samples_; ++row) {
      const auto rows = batch.own_rows(row);
      for (std::size_t field = 0; field < fields_.size(); ++field)
        rows[field] = fields_[field].name == model::pixel_field ? features_ * vision_->merged() : 1;
    }
    batch.resize(seq_length_);
    for (std::int64_t row = 0; row < samples_; ++row) {
      const auto sample = batch.sample(row);
      std::ranges::copy(*image_, sample.field<std::int32_t>(model::grid_field).begin());
      std::ranges::fill(sample.tokens, 0);
      std::fill_n(sample.tokens.begin(), features_, static_cast<std::int32_t>(vision_->image_token_id));
    }
  }

  BatchFields fields_;
  std::int64_t samples_, seq_length_;
  const model::VisionOptions* vision_;
  std::optional<std::array<std::int32_t, 3>> image_;
  std::int64_t features_ = 0;  ///< of each sample
  std::optional<Batch> extents_;
};

/// Messages that are received and sent immediately.
class NoChannel final : public training::StageChannel {
 public:
  std::unique_ptr<training::StageMessage> send(std::span<const std::byte>, std::int64_t, int,
                                               std::string_view) override {
    return std::make_unique<Complete>();
  }
  std::unique_ptr<training::StageMessage> receive(std::span<std::byte>, std::int64_t, int, std::string_view) override {
    return std::make_unique<Complete>();
  }

 private:
  struct Complete final : training::StageMessage {
    bool done() override { return true; }
    void wait() override {}
  };
};

class NoListener final : public training::BackwardListener {
 public:
  void begin_step() override {}
  void begin_pass(bool) override {}
  void gradient_complete(const autograd::Leaf&) override {}
  void end_pass() override {}
};

/// Gives every parameter the same addresses, for its value and, if it is trained, for its gradient. Nothing is read or
/// written there.
class SharedAddresses {
 public:
  explicit SharedAddresses(const std::vector<nn::Parameter*>& parameters) {
    std::int64_t most = 0;
    for (const auto* parameter : parameters) most = std::max(most, parameter->elements());
    memory_ = Storage(static_cast<std::size_t>(most) * sizeof(float));
    int number = 0;
    for (auto* parameter : parameters) {
      auto& leaf = parameter->leaf;
      leaf.value = Tensor(memory_.bytes(), parameter->type, parameter->shape());
      leaf.bind_grad(parameter->trained ? Tensor(memory_.bytes(), DType::float32, parameter->shape()) : Tensor{});
      leaf.number = number++;
    }
  }

 private:
  Storage memory_;
};

/// The chunks of a rank, ready to be rehearsed with micro-batches of any size.
class Rehearsal {
 public:
  Rehearsal(const Recipe& recipe, const LayoutFigures& layout, std::int64_t stage,
            autograd::AssumedChoices::Spread spread)
      : recipe_(recipe), layout_(layout), stage_(stage), threads_(kernels::Threads::Idle{}) {
    const parallel::MeshPlace place{.pipeline = static_cast<int>(stage)};
    groups_ = parallel::ProcessGroups::unconnected(layout.mesh, place, recipe.query_groups(), recipe.embedding_stage());
    const auto expert = groups_.expert_rank();
    objective_ = recipe.objective.make();
    assumed_ = {spread, expert.first(layout.experts), expert.count(layout.experts)};
    chunks_ = build_stage(recipe, vocabulary(recipe, recipe.tokenizer.make().get()), layout.plan, stage,
                          groups_.tensor_rank(recipe.parallel.sequence_parallel),
                          parallel::context_layout(recipe.parallel, groups_.context.rank()), expert);
    std::vector<nn::Parameter*> parameters;
    for (const auto& chunk : chunks_)
      for (auto* parameter : chunk->parameters()) parameters.push_back(parameter);
    addresses_.emplace(parameters);
  }

  /// Maximum of training and, if the run evaluates, evaluation.
  RehearsedPeak peak(std::int64_t samples) {
    check_size();
    std::vector<const model::Model*> chunks;
    for (const auto& chunk : chunks_) chunks.push_back(chunk.get());
    NoChannel channel;
    NoListener listener;
    training::Pipeline pipeline(
        {.chunks = std::move(chunks),
         .plan = layout_.plan,
         .stage = stage_,
         .micro_batch_group = layout_.shape.group,
         .frozen_chunks = frozen_chunks(recipe_, layout_.plan),
         .channel = channel,
         .listener = listener,
         .threads = threads_,
         .groups = &groups_},
        {.objective = objective_.get(), .replicas = static_cast<double>(groups_.replicas()), .assumed = &assumed_});
    PlainBatches batches(recipe_, samples);
    kernels::forget_workspace();
    pipeline.train(batches, micro_batches(), 1);
    const auto& run = recipe_.training;
    if (recipe_.needs_reference())  // its pass needs what an evaluation of the step does
      pipeline.evaluate(batches, std::min(layout_.shape.micro_batches, most_in_evaluation()));
    if (run.eval_interval > 0 && run.eval_iters > 0)
      pipeline.evaluate(batches, std::min(run.eval_iters * layout_.shape.micro_batches, most_in_evaluation()));
    return {.activations = static_cast<std::int64_t>(pipeline.arena().high_water()),
            .workspace = static_cast<std::int64_t>(kernels::workspace_bytes()),
            .messages = static_cast<std::int64_t>(groups_.foreseen_message_bytes),
            .exact = rehearses_whole_step()};
  }

 private:
  std::int64_t group() const { return layout_.shape.group > 0 ? layout_.shape.group : layout_.shape.stages; }

  /// Layers of the stage.
  double layers() const {
    double sum = 0;
    for (const auto& chunk : layout_.plan.stage(stage_)) sum += static_cast<double>(chunk.layers);
    return sum;
  }
  /// Number of micro-batches that are rehearsed. One stage starts each with an empty arena. 1F1B repeats itself behind
  /// its warm-up, so that more micro-batches need no more memory. An interleaved schedule releases activations in
  /// another order than it allocates them: the gaps in the arena differ from period to period, and the peak can still
  /// grow after a hundred micro-batches. So all of them are rehearsed, as long as that takes about a second.
  std::int64_t micro_batches() const {
    const auto& shape = layout_.shape;
    if (shape.stages == 1) return 1;
    constexpr std::int64_t enough = 64, periods = 4;
    constexpr double passes_in_time = 2e4;
    const auto in_time = shape.chunks == 1 ? 0.0 : passes_in_time / (2 * std::max(layers(), 1.0));
    const auto most = std::max(enough, static_cast<std::int64_t>(in_time));
    return std::min(shape.micro_batches, std::max(most / group(), periods) * group());
  }
  bool rehearses_whole_step() const {
    return layout_.shape.chunks == 1 || micro_batches() == layout_.shape.micro_batches;
  }
  /// The time grows with the passes of layers, and with the square of those whose activations are there at once.
  void check_size() const {
    constexpr double most_passes = 2e5, most_at_once = 2e3;
    const auto& shape = layout_.shape;
    const auto passes = 2 * layers() * static_cast<double>(micro_batches());
    const auto at_once = layers() * std::min(static_cast<double>(micro_batches()),
                                             static_cast<double>(shape.chunks == 1 ? shape.stages : 2 * group()));
    if (passes > most_passes || at_once > most_at_once)
      throw Error(text("activations are not foreseen for the ", layers(), " layers of a stage with ", micro_batches(),
                       " micro-batches"));
  }
  /// Runs until the maximum number of outputs is being sent to the next stage.
  std::int64_t most_in_evaluation() const { return layout_.shape.stages == 1 ? 1 : 3 * group(); }

  const Recipe& recipe_;
  const LayoutFigures& layout_;
  std::int64_t stage_;
  kernels::Threads threads_;
  parallel::ProcessGroups groups_;
  autograd::AssumedChoices assumed_;
  std::unique_ptr<model::Objective> objective_;
  std::vector<std::unique_ptr<model::Model>> chunks_;
  std::optional<SharedAddresses> addresses_;
};

/// Maximum tokens of a rehearsed micro-batch: token arrays are real memory, and some operations read them.
constexpr std::int64_t most_tokens = std::int64_t{1} << 22;
constexpr double most_bytes = 9e18;  // limit of 64-bit integers

}  // namespace

RehearsedPeak rehearsed_peak(const Recipe& recipe, const LayoutFigures& layout, std::int64_t stage,
                             autograd::AssumedChoices::Spread spread) {
  const auto each = recipe.rows_per_sample(), samples = recipe.batch.batch_size * each, length = recipe.size.seq_length;
  if (length > most_tokens) throw Error(text("activations are not foreseen for samples of ", length, " tokens"));
  Rehearsal rehearsal(recipe, layout, stage, spread);
  try {
    if (samples <= most_tokens / length) return rehearsal.peak(samples);
  } catch (const Error&) {  // the address space is too small
    if (samples == each) throw;
  }
  // What grows with the samples grows in proportion: two sizes tell how fast, of enough tokens that no operation could
  // take fewer at a time.
  constexpr std::int64_t enough_tokens = 1 << 15;
  const auto some = each * std::clamp<std::int64_t>(enough_tokens / length / each, 1, samples / each / 2);
  const auto once = rehearsal.peak(some), twice = rehearsal.peak(2 * some);
  const auto all = [&](std::int64_t one, std::int64_t two) {
    const auto more = static_cast<double>(samples) / static_cast<double>(some) - 1;
    return static_cast<std::int64_t>(
        std::min(static_cast<double>(one) + static_cast<double>(two - one) * more, most_bytes));
  };
  return {.activations = all(once.activations, twice.activations),
          .workspace = all(once.workspace, twice.workspace),
          .messages = once.messages,
          .exact = false};
}

std::optional<std::array<std::int32_t, 3>> foreseen_image(const Recipe& recipe) {
  const auto* vision = recipe.architecture->vision();
  if (!vision) return {};
  const auto side = vision->spatial_merge_size, length = recipe.size.seq_length;
  for (const auto& field : recipe.registries->datasets.fields(recipe.dataset))
    if (field.name == model::pixel_field) {
      const auto features = std::min({field.rows(length) / vision->merged(), length, INT32_MAX / side});
      if (features > 0) return {{1, static_cast<std::int32_t>(side), static_cast<std::int32_t>(features * side)}};
    }
  return {};
}

double foreseen_flops(const Recipe& recipe, const model::Model& chunk, std::int64_t samples) {
  const auto rows = samples * recipe.rows_per_sample();
  const auto image = foreseen_image(recipe);
  const auto of_images = image ? static_cast<double>(rows) * chunk.image_flops(*image) : 0;
  return chunk.flops(rows, recipe.size.seq_length) + of_images;
}

}  // namespace tessera::recipe
