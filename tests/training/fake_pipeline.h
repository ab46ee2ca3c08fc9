#pragma once

#include <condition_variable>
#include <exception>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <queue>
#include <set>
#include <thread>

#include "framework/options/choose.h"
#include "framework/training/step/pipeline.h"
#include "tests/story.h"
#include "tests/training/mailboxes.h"
#include "tests/training/stand_in_model.h"

// The pipeline by itself: all stages in this process, a thread each, with chunks whose values are known exactly,
// batches that are known, and a channel of mailboxes. Everything a stage does is recorded.

namespace tessera::training {

constexpr std::int64_t samples = 2, seq_length = 3;
constexpr auto tokens_of_batch = static_cast<std::size_t>(samples * seq_length);

/// Token `i` of a micro-batch: different in all micro-batches, exact in fp32 also after some multiplications.
inline std::int32_t token(std::int64_t micro_batch, std::size_t i) {
  return static_cast<std::int32_t>(1 + 10 * micro_batch) + static_cast<std::int32_t>(i);
}
float mask_of(std::size_t i) { return i % 3 == 2 ? 0.F : 1.F; }

/// The factor of the chunk that is the `number`-th of the model: a power of two.
float factor(std::int64_t number) { return number % 3 == 0 ? 2.F : number % 3 == 1 ? 0.5F : 4.F; }
inline float factors_before(std::int64_t number) {
  float all = 1;
  for (std::int64_t k = 0; k < number; ++k) all *= factor(k);
  return all;
}

/// What a stage does: "f0a" the forward pass of micro-batch 0 through chunk 0, "B0b" the backward pass through chunk 1.
using Record = std::vector<std::string>;
inline std::string name_of(bool forward, std::int64_t micro_batch, std::int64_t chunk) {
  return text(forward ? "f" : "B", micro_batch, static_cast<char>('a' + chunk));
}
inline std::string told(const Record& record) {
  std::string all;
  for (const auto& one : record) all += (all.empty() ? "" : " ") + one;
  return all;
}

/// y = factor x; the last chunk's loss of a token is its value.
class Multiplied final : public autograd::Node {
 public:
  Multiplied(autograd::VarId y, autograd::Var x, autograd::LeafUse weight, std::span<const float> seeds, Record& record,
             std::string name)
      : y_(y), x_(std::move(x)), weight_(weight), seeds_(seeds), record_(record), name_(std::move(name)) {}
  void backward(autograd::Tape& tape) override {
    record_.push_back(name_);
    const auto dy = seeds_.empty() ? tape.take_grad(y_) : autograd::Gradient();
    if (seeds_.empty()) must(!dy.empty(), "a gradient arrives");
    const auto gradient = seeds_.empty() ? std::span<const float>(dy.tensor.floats()) : seeds_;
    const auto dx = tape.grad_target(x_);
    const auto tokens = x_.floats().size();
    must(gradient.size() == tokens, "a gradient has the shape of its values");
    const float weight = weight_.leaf->value.floats()[0];
    for (std::size_t i = 0; i < tokens; ++i) {
      weight_.leaf->grad_to_add_to(tape.threads())[0] += gradient[i] * x_.floats()[i];
      if (!dx.tensor.empty()) dx.tensor.floats()[i] = gradient[i] * weight;
    }
    tape.done(weight_);
  }

 private:
  autograd::VarId y_;
  autograd::Var x_;
  autograd::LeafUse weight_;
  std::span<const float> seeds_;
  Record& record_;
  std::string name_;
};

/// A chunk that multiplies with its factor, and refuses values that are not those of the micro-batch.
class FakeChunk final : public StandInModel {
 public:
  FakeChunk(std::int64_t number, std::int64_t number_here, bool is_last, Record& record, bool trained = true)
      : number_(number), here_(number_here), is_last_(is_last), record_(record) {
    leaf_.value = Tensor(std::span(&weight_, 1), Shape{1});
    if (trained) leaf_.bind_grad(Tensor(std::span(&gradient_, 1), Shape{1}));
    leaf_.number = static_cast<int>(number_here);
  }
  Boundaries boundary(const TokenBatch& batch) const override {
    const Boundary one{{batch.samples, batch.seq_length}, DType::float32};
    return {one, one};
  }
  model::ChunkResult forward(autograd::Tape& tape, const autograd::Var& given, const TokenBatch& batch,
                             const model::ForwardMode& mode) const override {
    const auto micro_batch = batch.sample_ids[0];
    record_.push_back(name_of(true, micro_batch, here_));
    modes.push_back(mode);
    seeds_of_tokens.push_back(mode.objective->weigh(tape, batch, mode.share).seed);
    const Shape shape{batch.samples, batch.seq_length};
    const auto tokens = batch.tokens.size();
    autograd::Var x = given;
    if (x.empty()) {
      x = tape.make(shape, false);
      for (std::size_t i = 0; i < tokens; ++i) x.floats()[i] = static_cast<float>(batch.tokens[i]);
    }
    must(x.shape() == shape, "the values that arrive have the extents of the micro-batch");
    for (std::size_t i = 0; i < tokens; ++i)
      must(x.floats()[i] == static_cast<float>(token(micro_batch, i)) * factors_before(number_),
           "the values that arrive are those of the micro-batch");
    model::ChunkResult result;
    autograd::Var y = tape.make(shape, given.wants_grad() || leaf_.trained());
    for (std::size_t i = 0; i < tokens; ++i) y.floats()[i] = x.floats()[i] * weight_;
    std::span<float> seeds;
    if (is_last_) {
      const auto kept = tape.keep(tokens * sizeof(float));
      seeds = {reinterpret_cast<float*>(kept.data()), tokens};
      for (std::size_t i = 0; i < tokens; ++i) {
        seeds[i] = static_cast<float>(seeds_of_tokens.back()) * batch.loss_mask[i];
        result.loss.total.sum += y.floats()[i] * batch.loss_mask[i];
        result.loss.total.count += batch.loss_mask[i];
      }
    }
    if (y.wants_grad())
      tape.record<Multiplied>(autograd::VarId(y), x, tape.use(&leaf_), seeds, record_,
                              name_of(false, micro_batch, here_));
    if (!is_last_) result.hidden = std::move(y);
    return result;
  }
  double gradient() const { return gradient_; }
  mutable std::vector<model::ForwardMode> modes;
  mutable std::vector<double> seeds_of_tokens;

 private:
  std::int64_t number_, here_;
  bool is_last_;
  Record& record_;
  float weight_ = factor(number_);
  float gradient_ = 0;
  mutable autograd::Leaf leaf_;
};

/// What a stage knows of the lengths of micro-batches.
enum class Lengths { same, known, not_known };

/// Tokens of a sample of a micro-batch, if lengths vary: 1 to 5.
std::int64_t length_of(std::int64_t micro_batch) { return 1 + micro_batch * 3 % 5; }

/// Micro-batches by their number; counts how often each is read.
class FakeBatches final : public BatchSource {
 public:
  std::int64_t samples() const override { return training::samples; }
  std::int64_t seq_length() const override { return lengths == Lengths::same ? training::seq_length : 5; }
  bool lengths_vary() const override { return lengths != Lengths::same; }
  bool knows_lengths() const override { return lengths != Lengths::not_known; }
  double read(std::int64_t micro_batch, Batch& batch) override {
    ++times[micro_batch];
    if (lengths == Lengths::known) batch.resize(length_of(micro_batch) + longer);
    for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
      batch.tokens[i] = token(micro_batch, i);
      batch.loss_mask[i] = mask_of(i);
    }
    std::fill(batch.sample_ids.begin(), batch.sample_ids.end(), micro_batch);
    return 0.25;
  }
  std::map<std::int64_t, int> times;
  Lengths lengths = Lengths::same;
  std::int64_t longer = 0;  ///< tokens more than the other stages read
};

/// A stage's end of the mailboxes. What it sends stays under way until it was asked several times, or is waited for;
/// the memory must be unchanged then.
class FakeChannel final : public StageChannel {
 public:
  FakeChannel(Mailboxes& mail, std::int64_t stage, std::int64_t all) : mail_(mail), stage_(stage), stages_(all) {}

  std::unique_ptr<StageMessage> send(std::span<const std::byte> values, std::int64_t to, int tag,
                                     std::string_view) override {
    must(to >= 0 && to < stages_ && to != stage_ && tag >= 0 && tag < 32768, "a message has a receiver");
    record.push_back(text("send ", tag, " to ", to));
    const auto number = mail_.put({stage_, to, tag}, {values.begin(), values.end()});
    return std::make_unique<Sent>(values, [=, this] { mail_.wait_for_receiver({stage_, to, tag}, number); });
  }
  std::unique_ptr<StageMessage> receive(std::span<std::byte> values, std::int64_t from, int tag,
                                        std::string_view) override {
    mail_.expect({from, stage_, tag});
    std::fill(values.begin(), values.end(), std::byte{0xff});  // NaNs: whoever reads too early finds them
    return std::make_unique<Received>(mail_, Mailboxes::Address{from, stage_, tag}, values);
  }
  Record record;

 private:
  class Sent final : public StageMessage {
   public:
    Sent(std::span<const std::byte> values, std::function<void()> leave)
        : values_(values), copy_(values.begin(), values.end()), leave_(std::move(leave)) {}
    ~Sent() override {
      if (!copy_.empty() && std::uncaught_exceptions() == 0)
        ADD_FAILURE() << "a message is dropped while it is under way";
    }
    bool done() override {
      if (asked_++ < 3) return false;
      check();
      return true;
    }
    void wait() override {
      if (!copy_.empty()) leave_();
      asked_ = 3;
      check();
    }

   private:
    void check() {
      must(std::equal(values_.begin(), values_.end(), copy_.begin()), "what is under way does not change");
      values_ = {};
      copy_.clear();
    }
    std::span<const std::byte> values_;
    std::vector<std::byte> copy_;
    std::function<void()> leave_;
    int asked_ = 0;
  };
  class Received final : public StageMessage {
   public:
    Received(Mailboxes& mail, const Mailboxes::Address& address, std::span<std::byte> values)
        : mail_(mail), address_(address), values_(values) {}
    bool done() override { return here_ || mail_.has(address_); }
    void wait() override {
      if (here_) return;
      const auto came = mail_.take(address_);
      must(came.size() == values_.size(), "a message has the size that is received");
      std::copy(came.begin(), came.end(), values_.begin());
      here_ = true;
    }

   private:
    Mailboxes& mail_;
    Mailboxes::Address address_;
    std::span<std::byte> values_;
    bool here_ = false;
  };

  Mailboxes& mail_;
  std::int64_t stage_, stages_;
};

class FakeListener final : public BackwardListener {
 public:
  void begin_step() override { record.emplace_back("step"); }
  void begin_pass(bool last) override { record.emplace_back(last ? "last" : "pass"); }
  void gradient_complete(const autograd::Leaf& leaf) override { record.push_back(text("leaf ", leaf.number)); }
  void end_pass() override { record.emplace_back("end"); }
  Record record;
};

/// One stage with all it works with.
struct Stage {
  Stage(const parallel::LayerPlan& plan, std::int64_t stage, std::int64_t group, Mailboxes& mail,
        const StepSettings& settings, std::int64_t frozen_chunks = 0)
      : channel(mail, stage, plan.stages()) {
    for (std::int64_t c = 0; c < plan.chunks(); ++c) {
      const auto number = c * plan.stages() + stage;
      chunks.push_back(
          std::make_unique<FakeChunk>(number, c, !plan.after({stage, c}), record, number >= frozen_chunks));
    }
    std::vector<const model::Model*> models;
    for (const auto& chunk : chunks) models.push_back(chunk.get());
    pipeline = std::make_unique<Pipeline>(PipelineInputs{.chunks = models,
                                                         .plan = plan,
                                                         .stage = stage,
                                                         .micro_batch_group = group,
                                                         .frozen_chunks = frozen_chunks,
                                                         .channel = channel,
                                                         .listener = listener,
                                                         .threads = threads},
                                          settings);
  }
  Record record;
  FakeChannel channel;
  FakeListener listener;
  FakeBatches batches;
  kernels::Threads threads{1};
  std::vector<std::unique_ptr<FakeChunk>> chunks;
  std::unique_ptr<Pipeline> pipeline;
  Pipeline::Totals totals;
};

/// All stages of a pipeline.
class Stages {
 public:
  explicit Stages(const parallel::PipelineShape& shape, const StepSettings& settings = {},
                  std::int64_t frozen_chunks = 0)
      : shape_(shape), plan_(plan_of(shape)) {
    for (std::int64_t p = 0; p < shape.stages; ++p)
      stages_.push_back(std::make_unique<Stage>(plan_, p, shape.group, mail_, settings, frozen_chunks));
  }
  Stage& operator[](std::int64_t p) { return *stages_[static_cast<std::size_t>(p)]; }
  bool all_messages_taken() { return mail_.all_taken(); }

  /// Micro-batches differ in length; only the first and the last stage know how long they are.
  void vary() {
    for (std::int64_t p = 0; p < shape_.stages; ++p)
      (*this)[p].batches.lengths = p == 0 || p + 1 == shape_.stages ? Lengths::known : Lengths::not_known;
  }
  void train(double scale = 1) {
    on_all([&](Stage& stage) { stage.totals = stage.pipeline->train(stage.batches, shape_.micro_batches, scale); });
  }
  void evaluate() {
    on_all([&](Stage& stage) { stage.totals = stage.pipeline->evaluate(stage.batches, shape_.micro_batches); });
  }

 private:
  static parallel::LayerPlan plan_of(const parallel::PipelineShape& shape) {
    parallel::ParallelOptions options;
    options.pipeline_model_parallel_size = shape.stages;
    if (shape.chunks > 1) options.num_virtual_stages_per_pipeline_rank = shape.chunks;
    return {options, shape.stages * shape.chunks};
  }
  void on_all(const std::function<void(Stage&)>& work) {
    std::vector<std::exception_ptr> errors(stages_.size());
    std::vector<std::thread> threads;
    for (std::size_t p = 0; p < stages_.size(); ++p)
      threads.emplace_back([&, p] {
        try {
          work(*stages_[p]);
        } catch (...) {
          errors[p] = std::current_exception();
        }
      });
    for (auto& thread : threads) thread.join();
    for (const auto& error : errors)
      if (error) std::rethrow_exception(error);
  }

  parallel::PipelineShape shape_;
  parallel::LayerPlan plan_;
  Mailboxes mail_;
  std::vector<std::unique_ptr<Stage>> stages_;
};

}  // namespace tessera::training
