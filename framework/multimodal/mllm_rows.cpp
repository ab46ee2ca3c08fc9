#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>

#include "framework/base/error.h"
#include "framework/base/start_threads.h"
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
  const auto useful = std::min(workers, (records + records_at_once - 1) / records_at_once);
  start_threads(
      threads, static_cast<std::size_t>(std::max<std::int64_t>(useful, 1)) - 1, "reading of records",
      "dataset_config.preprocessing_num_workers", [&](std::size_t) { run(); }, [&] { next = records; });
  run();
  for (auto& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace

MllmRows::MllmRows(std::shared_ptr<const RecordFiles> files, std::shared_ptr<const RowEncoder> encoder,
                   std::int64_t workers, bool skip_unreadable, const Packing& packing)
    : files_(std::move(files)), encoder_(std::move(encoder)), packing_(packing) {
  std::vector<Found> found(static_cast<std::size_t>(files_->records()));
  look_at_all(workers, found);
  counts_.records = files_->records();
  for (auto& one : found) {
    const bool is_unreadable = one.dropped.empty() && one.row.tokens == 0;
    if (is_unreadable && skip_unreadable) one.dropped = "an image cannot be read";
    if (is_unreadable && !skip_unreadable) {
      if (packing_.is_on()) refuse_unreadable(one.row.record);
      ++counts_.unreadable;
    }
    counts_.as_written += one.as_written;
    if (one.dropped.empty()) {
      rows_.push_back(one.row);
      continue;
    }
    ++counts_.dropped[one.dropped];
    if (counts_.first_dropped.empty()) counts_.first_dropped = text(files_->place(one.row.record), ": ", one.dropped);
  }
  if (packing_.is_on()) {
    pack();
  } else {
    begins_.resize(rows_.size() + 1);
    std::iota(begins_.begin(), begins_.end(), std::size_t{0});
  }
}

void MllmRows::pack() {
  const auto batches = packing_batches(files_->records(), packing_);
  const auto batch_of = [&](const Row& row) { return batches[static_cast<std::size_t>(row.record)]; };
  std::vector<Row> packed;
  packed.reserve(rows_.size());
  for (std::size_t begin = 0, end = 0; begin < rows_.size(); begin = end) {
    std::vector<std::int64_t> lengths;
    for (; end < rows_.size() && batch_of(rows_[end]) == batch_of(rows_[begin]); ++end)
      lengths.push_back(rows_[end].tokens);
    for (const auto& members : packed_rows(lengths, packing_.capacity)) {
      begins_.push_back(packed.size());
      for (const auto member : members) packed.push_back(rows_[begin + member]);
    }
  }
  begins_.push_back(packed.size());
  rows_ = std::move(packed);
}

void MllmRows::refuse_unreadable(std::int64_t record) const {
  try {
    (void)read_record(record);
  } catch (const data::BadSampleError& error) {
    throw ConfigError(text(files_->place(record), ": ", error.what(),
                           "; packing needs the length of each record: mend the file, or leave such records out "
                           "with skip_unreadable_images"));
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
    if (!row->media.empty() && encoder_->splits_placeholders())
      throw ConfigError(
          "the record has images or videos, but split_special_tokens is true, which encodes the tokens that stand for "
          "them as ordinary text; set it to false, or leave such records out");
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
  Extents sum;
  for (const auto& row : rows_of(sample)) {
    if (row.tokens > 0) {
      sum.tokens += row.tokens, sum.patches += row.patches, sum.media += row.media;
      continue;
    }
    const auto now = read(sample);  // throws, unless the image can be read by now
    return {static_cast<std::int64_t>(now.input_ids.size()), now.patches(),
            static_cast<std::int64_t>(now.media.size())};
  }
  return sum;
}

std::vector<data::TokenOrigin> MllmRows::origins(std::int64_t sample) const {
  std::vector<data::TokenOrigin> all;
  std::int64_t first = 0;
  for (const auto& row : rows_of(sample)) {
    data::TokenOrigin origin;
    origin.first = first;
    origin.count = rows_of(sample).size() == 1 ? extents(sample).tokens : row.tokens;
    origin.document = origin.sequence = row.record;
    origin.place = files_->place(row.record);
    first += origin.count;
    all.push_back(std::move(origin));
  }
  return all;
}

EncodedRow MllmRows::read(std::int64_t sample) const {
  std::optional<EncodedRow> all;
  for (const auto& row : rows_of(sample)) {
    auto one = read_record(row.record);
    if (all)
      all->append(std::move(one));
    else
      all = std::move(one);
  }
  return std::move(*all);
}

EncodedRow MllmRows::read_record(std::int64_t record) const {
  std::string why;
  try {
    auto row = (*encoder_)(files_->record(record), why);
    if (!row || !encoder_->is_whole(*row)) throw data::BadSampleError(row ? "the row is cut inside an image" : why);
    return std::move(*row);
  } catch (const data::BadSampleError& error) {
    throw data::BadSampleError(text(files_->place(record), ": ", error.what()));
  }
}

}  // namespace tessera::multimodal
