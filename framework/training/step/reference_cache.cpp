#include "framework/training/step/reference_cache.h"

#include <cstring>
#include <utility>
#include <vector>

#include "framework/base/crc32c.h"

namespace tessera::training {
namespace {

struct ScoreRecord {
  model::ReferenceScores::Entry entry;
  std::uint32_t crc = 0, zero = 0;
};
static_assert(sizeof(ScoreRecord) == 24);

std::uint32_t crc_of(const model::ReferenceScores::Entry& entry) { return crc32c(std::as_bytes(std::span(&entry, 1))); }

void read_records(const std::string& bytes, const model::ReferenceScores& scores) {
  ScoreRecord record;
  for (std::size_t at = 0; at + sizeof record <= bytes.size(); at += sizeof record) {
    std::memcpy(&record, bytes.data() + at, sizeof record);
    if (record.crc != crc_of(record.entry)) return;
    scores.add(record.entry);
  }
}

/// A name that no file of the folder has: a process appends to no file of an earlier one, which may end in half a
/// record.
std::filesystem::path unused_name(const std::filesystem::path& folder, const std::string& process) {
  for (int start = 0;; ++start)
    if (auto path = folder / text(process, "-", start, ".bin"); !std::filesystem::exists(path)) return path;
}

}  // namespace

ReferenceCache::ReferenceCache(const std::filesystem::path& folder, const std::string& process, bool judges,
                               bool writes, const model::ReferenceScores& scores,
                               std::function<void(const std::string&)> tell)
    : judges_(judges), tell_(std::move(tell)) {
  if (!judges) return;
  std::filesystem::create_directories(folder);
  for (const auto& file : std::filesystem::directory_iterator(folder))
    if (file.path().extension() == ".bin") read_records(read_file(file.path()), scores);
  if (writes) file_ = File::create(unused_name(folder, process));
}

void ReferenceCache::add(std::span<const model::ReferenceScores::Entry> entries) {
  if (!file_ || entries.empty()) return;
  std::vector<ScoreRecord> records;
  for (const auto& entry : entries) records.push_back({.entry = entry, .crc = crc_of(entry)});
  try {
    file_->write(std::as_bytes(std::span(records)));
  } catch (const IoError& error) {
    file_.reset();  // after part of a record no other is read
    tell_(text("no more log-probabilities of the reference model are stored, and the run continues without: ",
               error.what()));
  }
}

}  // namespace tessera::training
