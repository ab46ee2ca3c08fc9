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

/// The samples of one split that are not used, each replaced by another sample of the split. Which one is a function of
/// the set alone, so ranks with the same set read the same samples. May be used by several threads.
class Quarantine {
 public:
  /// `samples`: of the split.
  explicit Quarantine(std::int64_t samples) : samples_(samples) {}

  /// The sample that is read where the order says `index`: that itself, or what replaces it.
  std::int64_t chosen(std::int64_t index) const;
  /// Returns whether it is new. Throws ConfigError if the split has no such sample, or no other is left.
  bool add(std::int64_t index);
  std::set<std::int64_t> indices() const;

 private:
  std::int64_t samples_;
  mutable std::shared_mutex mutex_;
  std::set<std::int64_t> indices_;
};

/// `order`, with the samples of `quarantine`, which must outlive it, replaced.
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

/// The samples that a text like quarantine.jsonl names: one JSON object a line with `split` and `sample`; other keys
/// are for people. Throws ConfigError, with `name` and the line, for what is no such text.
std::vector<SplitSample> read_quarantine(const std::string& words, const std::string& name);

/// The quarantines of all splits of a run.
class Quarantines {
 public:
  /// Adds a split. The reference stays valid as long as this object.
  const Quarantine& add_split(const std::string& name, const Dataset& data);
  /// The name of the split with this data. Throws BugError if it was not added.
  const std::string& split_of(const Dataset& data) const;
  /// Returns whether it is new. Throws ConfigError, which names the splits there are, for another split, and as
  /// Quarantine.
  bool add(const SplitSample& sample);
  /// Adds the samples that were known before the run; they do not count in found().
  void add_known(const std::vector<SplitSample>& samples);
  /// Adds what an earlier start of the run found, as far as the run still has such splits and samples.
  void restore(const std::vector<SplitSample>& samples);
  /// What add() and restore() added, in order of splits and samples.
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
