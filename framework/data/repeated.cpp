#include "framework/data/dataset.h"

namespace tessera::data {
namespace {

class Repeated final : public Sampler {
 public:
  Repeated(std::unique_ptr<Sampler> order, std::int64_t epoch) : order_(std::move(order)), epoch_(epoch) {
    must(order_ && epoch_ > 0, "an order that is repeated has samples");
  }
  std::int64_t index(std::int64_t consumed) const override { return order_->index(consumed % epoch_); }
  std::int64_t stride() const override {
    const auto stride = order_->stride();
    return stride > 0 && epoch_ % stride == 0 ? stride : 0;
  }

 private:
  std::unique_ptr<Sampler> order_;
  std::int64_t epoch_;
};

class StartingAt final : public Sampler {
 public:
  StartingAt(std::unique_ptr<Sampler> order, std::int64_t start) : order_(std::move(order)), start_(start) {
    must(order_ && start_ >= 0, "an order begins at a number of samples");
  }
  std::int64_t index(std::int64_t consumed) const override { return order_->index(consumed - start_); }
  std::int64_t stride() const override { return order_->stride(); }

 private:
  std::unique_ptr<Sampler> order_;
  std::int64_t start_;
};

}  // namespace

std::unique_ptr<Sampler> starting_at(std::unique_ptr<Sampler> order, std::int64_t start) {
  return std::make_unique<StartingAt>(std::move(order), start);
}

std::unique_ptr<Sampler> repeated(std::unique_ptr<Sampler> order, std::int64_t epoch) {
  return std::make_unique<Repeated>(std::move(order), epoch);
}

}  // namespace tessera::data
