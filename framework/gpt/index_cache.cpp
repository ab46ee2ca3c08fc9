#include "framework/gpt/index_cache.h"

#include <unistd.h>

#include <chrono>
#include <optional>
#include <thread>

#include "framework/base/build_lock.h"
#include "framework/base/crc32c.h"
#include "framework/base/number_text.h"
#include "framework/base/system_call.h"
#include "framework/gpt/md5.h"

namespace tessera::gpt {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr auto pause_of_waiting = std::chrono::milliseconds(20);
constexpr auto silent_waiting = std::chrono::seconds(1);

/// Checksum of the arrays, or of blocks at equal distances of large ones, so that few pages are read.
std::uint32_t sum_of_some(const std::vector<IndexArray>& arrays) {
  constexpr std::size_t blocks = 64, block_bytes = 4096;
  std::uint32_t sum = 0;
  for (const auto& array : arrays) {
    const auto bytes = array.bytes();
    if (bytes.size() <= blocks * block_bytes) {
      sum = crc32c(bytes, sum);
      continue;
    }
    for (std::size_t i = 0; i < blocks; ++i)
      sum = crc32c(bytes.subspan((bytes.size() - block_bytes) / (blocks - 1) * i, block_bytes), sum);
  }
  return sum;
}

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

}  // namespace

/// The files of one request.
class IndexCache::Files {
 public:
  Files(const Options& options, const Request& request)
      : request_(request),
        may_write_(options.may_write),
        base_(options.folder / text(md5_hex(request.description), "-", request.kind, "-")) {
    const auto of_host = options.no_shared_storage ? text(host_name(), ".") : std::string();
    lock_ = base_.string() + of_host + "lock";
  }

  const fs::path& lock() const { return lock_; }
  fs::path array(const Expected& one) const { return base_.string() + one.name + ".npy"; }
  fs::path description() const { return base_.string() + "description.txt"; }

  /// As for Megatron-LM: whether all exist.
  bool exist() const {
    std::error_code ignored;
    for (const auto& one : request_.arrays)
      if (!fs::is_regular_file(array(one), ignored)) return false;
    return fs::is_regular_file(description(), ignored);
  }

  /// Throws ConfigError or IoError for what does not fit.
  std::vector<IndexArray> map() const {
    if (read_file(description()) != request_.description)
      throw ConfigError(text(description().string(), ": describes another index than its name says"));
    std::vector<IndexArray> arrays;
    for (const auto& one : request_.arrays) {
      arrays.push_back(IndexArray::map(array(one)));
      const auto& got = arrays.back();
      if (got.type() != one.type || got.shape() != one.shape)
        throw ConfigError(text(array(one).string(), ": is an array of ", numpy_name(got.type()), " with the shape ",
                               shape_text(got.shape()), "; expected ", numpy_name(one.type), " with ",
                               shape_text(one.shape), ": was it made of other data with the same prefix?"));
    }
    if (request_.check) check(arrays);
    return arrays;
  }

  /// Under the lock. Throws IoError.
  void write(const std::vector<IndexArray>& arrays) const {
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      const auto header = arrays[i].npy_header();
      write_one(array(request_.arrays[i]), {std::as_bytes(std::span(header)), arrays[i].bytes()});
    }
    if (request_.check) write_checked(arrays);
    write_one(description(), {std::as_bytes(std::span(request_.description))});
  }

  /// Under the lock: what builders that died have left, and the description, so that nobody takes old arrays while new
  /// ones are written.
  void clean() const {
    std::error_code ignored;
    fs::remove(description(), ignored);
    fs::remove(checked(), ignored);
    const auto begin = base_.filename().string();
    for (const auto& file : list_folder(base_.parent_path()))
      if (file.filename().string().rfind(begin, 0) == 0 && file.extension() == unfinished) fs::remove(file, ignored);
  }

 private:
  static constexpr const char* unfinished = ".unfinished";

  fs::path checked() const { return base_.string() + "checked.txt"; }

  std::string checked_text(const std::vector<IndexArray>& arrays) const {
    if (!source_sum_) source_sum_ = request_.source_sum ? request_.source_sum() : 0;
    return text("source ", crc_text(*source_sum_), "\nentries ", crc_text(sum_of_some(arrays)), "\n");
  }

  void write_checked(const std::vector<IndexArray>& arrays) const {
    const auto words = checked_text(arrays);
    write_one(checked(), {std::as_bytes(std::span(words))});
  }

  /// Throws ConfigError if entries are wrong.
  void check(const std::vector<IndexArray>& arrays) const {
    std::error_code ignored;
    if (fs::is_regular_file(checked(), ignored) && read_file(checked()) == checked_text(arrays)) return;
    const auto wrong = request_.check(arrays);
    for (const auto& array : arrays) array.require_pages();
    if (!wrong.empty()) throw ConfigError(text(base_.string(), "*: ", wrong));
    if (!may_write_) return;
    try {
      write_checked(arrays);
    } catch (const IoError&) {  // a folder that is only read: every run checks again
    }
  }

  static void write_one(const fs::path& path, std::initializer_list<std::span<const std::byte>> pieces) {
    // A name of its own: on file systems without locks several processes write at once.
    const fs::path own = text(path.string(), ".", host_name(), ".", ::getpid(), unfinished);
    try {
      auto file = File::create(own);
      // Not synced: what a crash of the host cuts short is found by its size or text, and built again.
      for (const auto piece : pieces) file.write(piece);
      file.close();
      std::error_code error;
      fs::rename(own, path, error);
      if (error) throw IoError(text(path.string(), ": cannot be written: ", error.message()));
    } catch (const IoError&) {
      std::error_code ignored;
      fs::remove(own, ignored);
      throw;
    }
  }

  const Request& request_;
  bool may_write_;
  fs::path base_, lock_;
  mutable std::optional<std::uint32_t> source_sum_;  ///< computed once
};

IndexCache::IndexCache(Options options) : options_(std::move(options)) {
  if (!options_.folder.empty()) options_.folder = fs::absolute(options_.folder);
}

IndexCache::Result IndexCache::build(const Request& request, const Files& files) const {
  Result result{request.build(), true};
  if (!options_.may_write) return result;
  try {
    files.write(result.arrays);
    result.arrays = files.map();  // the same pages as everybody else
  } catch (const IoError& error) {
    tell(text("the index of the samples is kept in memory, for it cannot be written: ", error.what()));
  }
  return result;
}

IndexCache::Result IndexCache::get(const Request& request) const {
  if (options_.folder.empty()) return {request.build(), true};
  const Files files(options_, request);
  std::string problem;
  const auto mapped = [&]() -> std::optional<Result> {
    if (!problem.empty() || !files.exist()) return {};
    try {
      return Result{files.map(), false};
    } catch (const Error& error) {
      problem = error.what();
      return {};
    }
  };
  if (auto found = mapped()) return std::move(*found);
  if (!options_.may_write) {
    if (!problem.empty()) tell(text("the index of the samples is built in memory: ", problem));
    return {request.build(), true};
  }
  const auto begin = Clock::now();
  bool told = false;
  try {
    make_folder(options_.folder);
    for (;;) {
      const auto lock = BuildLock::try_take(files.lock());
      // Another process may have built it since we looked.
      if (lock) {
        problem.clear();
        if (auto found = mapped()) return std::move(*found);
        if (!problem.empty()) tell(text("the index of the samples is built again: ", problem));
        files.clean();
        return build(request, files);
      }
      if (!told && Clock::now() - begin > silent_waiting) {
        tell(text("waiting for the index of the samples (", request.kind, "), which ", BuildLock::owner(files.lock()),
                  " builds in ", options_.folder.string()));
        told = true;
      }
      std::this_thread::sleep_for(pause_of_waiting);
      problem.clear();
      if (auto found = mapped()) {
        if (told) tell(text("waited ", duration_text(seconds_since(begin)), " for the index of the samples"));
        return std::move(*found);
      }
    }
  } catch (const IoError& error) {
    tell(text("the index of the samples is kept in memory of each process, for ", options_.folder.string(),
              " cannot be written: ", error.what(), ". Give data_cache_path a folder that can be"));
  }
  return {request.build(), true};
}

}  // namespace tessera::gpt
