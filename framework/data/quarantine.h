#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <shared_mutex>
#include <string>
#include <vector>

#include "framework/data/sampler.h"

namespace tessera::data {

/// The bad samples of one split, each replaced by another sample of the split. The replacement depends only on the set
/// of bad samples, so ranks with the same set read the same samples. Thread-safe.
class Quarantine {
 public:
  /// `samples`: number of samples of the split.
  explicit Quarantine(std::int64_t samples) : samples_(samples) {}

  /// The sample to read in place of sample `index`: `index` itself if it is not in the quarantine, else its
  /// replacement.
  std::int64_t chosen(std::int64_t index) const;
  /// Adds sample `index`. Returns whether it was not in the quarantine yet. Throws ConfigError if the split has no such
  /// sample, or no usable sample would be left.
  bool add(std::int64_t index);
  /// The bad samples.
  std::set<std::int64_t> indices() const;

 private:
  std::int64_t samples_;
  mutable std::shared_mutex mutex_;
  std::set<std::int64_t> indices_;
};

/// A sampler that replaces the samples of `quarantine` in `order`. `quarantine` must outlive the result.
std::unique_ptr<Sampler> replacing(std::unique_ptr<Sampler> order, const Quarantine& quarantine);

/// A sample of a split by name: train, valid, test, or valid-NAME of one of several validation sets.
struct SplitSample {
  std::string split;
  std::int64_t index = 0;
  bool operator<(const SplitSample& other) const {
    return split != other.split ? split < other.split : index < other.index;
  }
  bool operator==(const SplitSample& other) const { return split == other.split && index == other.index; }
};

/// Parses a text in the format of quarantine.jsonl: one JSON object per line with `split` and `sample`; other keys are
/// ignored. Throws ConfigError, with `name` and the line, for invalid text.
std::vector<SplitSample> read_quarantine(const std::string& words, const std::string& name);

/// The quarantines of all splits of a run.
class Quarantines {
 public:
  /// Adds a split. `data` must outlive this object. The reference is valid as long as this object.
  const Quarantine& add_split(const std::string& name, const Dataset& data);
  /// The name of the split with this data. Throws BugError if it was not added.
  const std::string& split_of(const Dataset& data) const;
  /// Adds a sample. Returns whether it was not in the quarantine yet. Throws ConfigError, listing the splits, for an
  /// unknown split; and as Quarantine::add does.
  bool add(const SplitSample& sample);
  /// Adds samples that were known before the run; they are not included in found().
  void add_known(const std::vector<SplitSample>& samples);
  /// Adds samples found by an earlier start of the run, except those whose split or index no longer exists.
  void restore(const std::vector<SplitSample>& samples);
  /// The samples that add() and restore() added, sorted by split and index.
  const std::set<SplitSample>& found() const { return found_; }

 private:
  struct Split {
    explicit Split(const Dataset& of) : data(&of), quarantine(of.samples()) {}
    const Dataset* data;
    Quarantine quarantine;
  };
  std::map<std::string, std::unique_ptr<Split>> splits_;
  std::set<SplitSample> found_;
};

}  // namespace tessera::data
