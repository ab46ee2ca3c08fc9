#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "framework/base/error.h"
#include "framework/data/bad_sample.h"
#include "framework/multimodal/mllm_dataset.h"

namespace tessera::multimodal {

struct MllmRows::Found {
  Row row;
  std::string dropped;  // the reason; empty: kept
  std::int32_t as_written = 0;
};

namespace {

constexpr std::int64_t records_at_once = 64;  // of one thread

// Runs `work(record)` for all records on `workers` threads. Throws the error of the first record that has one.
template <class Work>
void for_each_record(std::int64_t records, std::int64_t workers, const Work& work) {
  std::atomic<std::int64_t> next = 0;
  std::mutex mutex;
  std::int64_t failed = records;
  std::exception_ptr error;
  const auto run = [&] {
    for (auto begin = next.fetch_add(records_at_once); begin < records; begin = next.fetch_add(records_at_once))
      for (auto at = begin; at < std::min(begin + records_at_once, records); ++at) {
        try {
          work(at);
        } catch (...) {
          const std::lock_guard lock(mutex);
          if (at < failed) failed = at, error = std::current_exception();
          next = records;
          break;
        }
      }
  };
  std::vector<std::thread> threads;
  for (std::int64_t i = 1; i < workers && i * records_at_once < records; ++i) threads.emplace_back(run);
  run();
  for (auto& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace

MllmRows::MllmRows(std::shared_ptr<const RecordFiles> files, std::shared_ptr<const RowEncoder> encoder,
                   std::int64_t workers, bool skip_unreadable)
    : files_(std::move(files)), encoder_(std::move(encoder)) {
  std::vector<Found> found(static_cast<std::size_t>(files_->records()));
  look_at_all(workers, found);
  counts_.records = files_->records();
  for (auto& one : found) {
    const bool is_unreadable = one.dropped.empty() && one.row.tokens == 0;
    if (is_unreadable && skip_unreadable) one.dropped = "an image cannot be read";
    if (is_unreadable && !skip_unreadable) ++counts_.unreadable;
    counts_.as_written += one.as_written;
    if (one.dropped.empty()) {
      rows_.push_back(one.row);
      continue;
    }
    ++counts_.dropped[one.dropped];
    if (counts_.first_dropped.empty()) counts_.first_dropped = text(files_->place(one.row.record), ": ", one.dropped);
  }
}

void MllmRows::look_at_all(std::int64_t workers, std::vector<Found>& found) const {
  for_each_record(files_->records(), workers,
                  [&](std::int64_t record) { found[static_cast<std::size_t>(record)] = look_at(record); });
}

MllmRows::Found MllmRows::look_at(std::int64_t record) const {
  Found found;
  found.row.record = record;
  std::string why;
  try {
    const auto row = (*encoder_)(files_->record(record), why);
    if (!row) {
      found.dropped = "roles of the messages are unknown, not in their turn, or without an answer";
      return found;
    }
    for (const auto& medium : row->media)
      for (const auto& frame : medium.frames) {
        bool as_written = false;
        (void)encoder_->media().found(frame, &as_written);
        found.as_written += as_written ? 1 : 0;
      }
    if (!encoder_->is_whole(*row)) {
      found.dropped = "the row is cut inside an image, or has a placeholder without one";
      return found;
    }
    found.row.tokens = static_cast<std::int32_t>(row->input_ids.size());
    found.row.patches = static_cast<std::int32_t>(row->patches());
    found.row.media = static_cast<std::int32_t>(row->media.size());
  } catch (const data::BadSampleError&) {
    found.row.tokens = 0;
  } catch (const ConfigError& error) {
    const std::string words = error.what(), place = files_->place(record);
    throw ConfigError(words.starts_with(place) ? words : text(place, ": ", words));
  }
  return found;
}

MllmRows::Extents MllmRows::extents(std::int64_t sample) const {
  const auto& row = rows_[static_cast<std::size_t>(sample)];
  if (row.tokens > 0) return {row.tokens, row.patches, row.media};
  const auto now = read(sample);  // throws, unless the image can be read by now
  return {static_cast<std::int64_t>(now.input_ids.size()), now.patches(), static_cast<std::int64_t>(now.media.size())};
}

EncodedRow MllmRows::read(std::int64_t sample) const {
  std::string why;
  try {
    auto row = (*encoder_)(files_->record(rows_[static_cast<std::size_t>(sample)].record), why);
    if (!row || !encoder_->is_whole(*row)) throw data::BadSampleError(row ? "the row is cut inside an image" : why);
    return std::move(*row);
  } catch (const data::BadSampleError& error) {
    throw data::BadSampleError(text(place(sample), ": ", error.what()));
  }
}

}  // namespace tessera::multimodal
