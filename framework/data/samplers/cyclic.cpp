// Epoch after epoch, each reshuffled, as Megatron-LM's MegatronPretrainingRandomSampler and MindSpeed-MM's
// BaseRandomBatchSampler. There, ranks that share an order may get different numbers of batches in an epoch; here each
// epoch ends for all ranks at once.

#include <mutex>

#include "framework/data/dataset.h"
#include "framework/data/legacy_random.h"

namespace tessera::data {
namespace {

struct CyclicOptions {
  bool data_sharding = true, shuffle_epochs = true;
};

void describe(options::Schema<CyclicOptions>& s) {
  s.when_changed(options::Change::order);
  s.option("data_sharding", &CyclicOptions::data_sharding,
           "Each data-parallel rank shuffles its own shard; false: all ranks share one shuffled order.");
  s.option("shuffle_epochs", &CyclicOptions::shuffle_epochs,
           "Shuffle each epoch; false: read in the order of the dataset.")
      .no_flag("Megatron-LM's cyclic order is always shuffled");
}

class Cyclic final : public Sampler {
 public:
  Cyclic(const CyclicOptions& options, const SamplerParts& parts)
      : sharding_(options.data_sharding),
        shuffle_(options.shuffle_epochs),
        parts_(parts),
        stride_(parts.micro_batch * parts.ranks),
        epoch_samples_(parts.samples / stride_ * stride_) {
    if (epoch_samples_ == 0)
      throw ConfigError(text("dataloader_type cyclic: the dataset has ", parts.samples, " samples, fewer than the ",
                             stride_, " that all ranks read at once; make batch_size smaller"));
  }

  std::int64_t index(std::int64_t consumed) const override {
    const auto epoch = consumed / epoch_samples_, within = consumed % epoch_samples_;
    const auto round = within / stride_, rank = within % stride_ / parts_.micro_batch,
               row = within % parts_.micro_batch;
    const auto own = round * parts_.micro_batch + row;  // number among the samples of this rank
    if (!sharding_)
      return shuffled(epoch, parts_.samples / parts_.micro_batch * parts_.micro_batch, own * parts_.ranks + rank);
    const auto share = epoch_samples_ / parts_.ranks;
    return rank * share + shuffled(epoch, share, own);
  }
  std::int64_t stride() const override { return stride_; }

 private:
  std::int64_t shuffled(std::int64_t epoch, std::int64_t count, std::int64_t at) const {
    if (!shuffle_) return at;
    const std::lock_guard lock(mutex_);
    if (epoch != epoch_) {
      order_ = torch_randperm(count, static_cast<std::uint32_t>(epoch));
      epoch_ = epoch;
    }
    return order_[static_cast<std::size_t>(at)];
  }

  bool sharding_, shuffle_;
  SamplerParts parts_;
  std::int64_t stride_, epoch_samples_;
  mutable std::mutex mutex_;  // the order of the epoch read last is kept
  mutable std::int64_t epoch_ = -1;
  mutable std::vector<std::int64_t> order_;
};

std::unique_ptr<Sampler> make_cyclic(const CyclicOptions& o, SamplerParts parts) {
  return std::make_unique<Cyclic>(o, parts);
}

}  // namespace

void register_cyclic(SamplerRegistry& registry) {
  registry.add("cyclic", make_cyclic, "Shuffled in every epoch; an incomplete last global batch is dropped.");
}

}  // namespace tessera::data
