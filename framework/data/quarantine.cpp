#include "framework/data/quarantine.h"

#include <algorithm>
#include <mutex>

#include "framework/base/json.h"
#include "framework/base/random.h"

namespace tessera::data {
namespace {

class Replacing final : public Sampler {
 public:
  Replacing(std::unique_ptr<Sampler> order, const Quarantine& quarantine)
      : order_(std::move(order)), quarantine_(quarantine) {}
  std::int64_t index(std::int64_t consumed) const override { return quarantine_.chosen(order_->index(consumed)); }
  std::int64_t stride() const override { return order_->stride(); }

 private:
  std::unique_ptr<Sampler> order_;
  const Quarantine& quarantine_;
};

}  // namespace

std::int64_t Quarantine::chosen(std::int64_t index) const {
  const std::shared_lock lock(mutex_);
  if (indices_.count(index) == 0) return index;
  // Far from each other, so that neighbours, which a damaged file has in common, are not the replacement. add() has
  // left a sample; if the tries miss it, it is found by going through all.
  constexpr std::uint64_t tries = 64;
  const RandomKey key(0, Purpose::data, name_id("the replacement of a sample"));
  auto at = index;
  for (std::uint64_t attempt = 0; attempt < tries; ++attempt) {
    const auto words = key.words(static_cast<std::uint64_t>(index), attempt);
    const auto number = static_cast<std::uint64_t>(words[0]) << 32U | words[1];
    at = static_cast<std::int64_t>(number % static_cast<std::uint64_t>(samples_));
    if (indices_.count(at) == 0) return at;
  }
  while (indices_.count(at) > 0) at = (at + 1) % samples_;
  return at;
}

bool Quarantine::add(std::int64_t index) {
  const std::unique_lock lock(mutex_);
  if (index < 0 || index >= samples_)
    throw ConfigError(text("sample ", index, " is in quarantine, but the split has ", samples_,
                           " samples; the quarantine belongs to other data"));
  if (indices_.count(index) > 0) return false;
  if (static_cast<std::int64_t>(indices_.size()) + 1 >= samples_)
    throw ConfigError(text("all ", samples_, " samples of the split are in quarantine; none is left to use"));
  return indices_.insert(index).second;
}

std::set<std::int64_t> Quarantine::indices() const {
  const std::shared_lock lock(mutex_);
  return indices_;
}

std::unique_ptr<Sampler> replacing(std::unique_ptr<Sampler> order, const Quarantine& quarantine) {
  return std::make_unique<Replacing>(std::move(order), quarantine);
}

std::vector<SplitSample> read_quarantine(const std::string& words, const std::string& name) {
  std::vector<SplitSample> all;
  std::int64_t number = 0;
  for (std::size_t begin = 0; begin < words.size();) {
    const auto end = std::min(words.find('\n', begin), words.size());
    const auto line = words.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      const auto object = parse_json(line);
      all.push_back({object.at("split").string(), object.at("sample").get<std::int64_t>()});
    } catch (const JsonError& error) {
      throw ConfigError(text(name, ":", number,
                             ": expected an object such as {\"split\": \"train\", \"sample\": 17}: ", error.what()));
    }
  }
  return all;
}

const Quarantine& Quarantines::add_split(const std::string& name, const Dataset& data) {
  const auto& added = *splits_.emplace(name, std::make_unique<Split>(data)).first->second;
  must(added.data == &data, "each split has a name of its own");
  return added.quarantine;
}

const std::string& Quarantines::split_of(const Dataset& data) const {
  for (const auto& [name, split] : splits_)
    if (split->data == &data) return name;
  throw BugError("a dataset is read that is not a split of the run");
}

bool Quarantines::add(const SplitSample& sample) {
  const auto at = splits_.find(sample.split);
  if (at == splits_.end()) {
    std::string names;
    for (const auto& [name, split] : splits_) names += (names.empty() ? "" : ", ") + name;
    throw ConfigError(
        text("a sample of the split '", sample.split, "' is in quarantine, but the run has only: ", names));
  }
  try {
    if (!at->second->quarantine.add(sample.index)) return false;
  } catch (ConfigError& error) {
    error.during(text("adding sample ", sample.index, " of split '", sample.split, "' to the quarantine"));
    throw;
  }
  found_.insert(sample);
  return true;
}

void Quarantines::restore(const std::vector<SplitSample>& samples) {
  for (const auto& sample : samples) {
    const auto at = splits_.find(sample.split);
    if (at != splits_.end() && sample.index < at->second->data->samples()) add(sample);
  }
}

void Quarantines::add_known(const std::vector<SplitSample>& samples) {
  for (const auto& sample : samples)
    if (add(sample)) found_.erase(sample);
}

}  // namespace tessera::data
