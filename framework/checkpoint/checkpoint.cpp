#include "framework/checkpoint/checkpoint.h"

#include <algorithm>
#include <mutex>
#include <set>

#include "framework/base/crc32c.h"
#include "framework/base/files.h"
#include "framework/checkpoint/blobs.h"
#include "framework/checkpoint/copy_converted.h"
#include "framework/checkpoint/frozen_base.h"
#include "framework/checkpoint/manifest.h"
#include "framework/tensor/box.h"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Size of the pieces that are read and checksummed, so that they stay in the processor's cache.
constexpr std::size_t read_piece_bytes = std::size_t{1} << 20;
constexpr std::size_t most_named_tensors = 5;

std::uint32_t sum_of(const File& file, std::uint64_t offset, std::uint64_t bytes) {
  std::vector<std::byte> buffer(static_cast<std::size_t>(std::min<std::uint64_t>(read_piece_bytes, bytes)));
  std::uint32_t sum = 0;
  for (std::uint64_t done = 0; done < bytes; done += buffer.size()) {
    const auto piece =
        std::span(buffer).first(static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), bytes - done)));
    file.read_at(offset + done, piece);
    sum = crc32c(piece, sum);
  }
  return sum;
}

/// Reads a stored range row by row, each row once, and copies the requested part of it.
class RangeReader {
 public:
  RangeReader(const File& file, const Checkpoint::StoredRange& range, DType type)
      : file_(file), range_(range), type_(type), box_(Box::of(range.offsets, range.extents)) {}

  /// Reads directly into the memory of `into`, if the elements of the whole range are contiguous there.
  std::uint32_t straight(const Tensor& into, const Box& into_box) const {
    const auto size = size_of(type_);
    auto target = into.raw().subspan(static_cast<std::size_t>(position_in(into_box, box_.begin)) * size,
                                     static_cast<std::size_t>(range_.bytes));
    std::uint32_t sum = 0;
    for (std::uint64_t at = range_.byte_offset; !target.empty();) {
      const auto piece = target.first(std::min(read_piece_bytes, target.size()));
      file_.read_at(at, piece);
      if (summing_) sum = crc32c(piece, sum);
      at += piece.size();
      target = target.subspan(piece.size());
    }
    return sum;
  }

  /// Reads rows [first, first + count) of the range into a buffer, and copies `part` from it.
  std::uint32_t through_buffer(const Box& part, std::int64_t first, std::int64_t count, const Tensor& into,
                               const Box& into_box) const {
    const auto row = box_.elements_of_row();
    const auto row_bytes = static_cast<std::size_t>(row) * size_of(type_);
    const auto step =
        std::max<std::int64_t>(1, static_cast<std::int64_t>(read_piece_bytes / std::max<std::size_t>(row_bytes, 1)));
    std::vector<std::byte> buffer(row_bytes * static_cast<std::size_t>(std::min(step, count)));
    std::uint32_t sum = 0;
    for (std::int64_t done = 0; done < count; done += step) {
      Box rows = box_;
      rows.begin[0] += first + done;
      rows.extent[0] = std::min(step, count - done);
      const auto piece = std::span(buffer).first(row_bytes * static_cast<std::size_t>(rows.extent[0]));
      file_.read_at(range_.byte_offset + row_bytes * static_cast<std::size_t>(first + done), piece);
      if (summing_) sum = crc32c(piece, sum);
      if (const auto shared = intersection(part, rows))
        copy_box(*shared, Tensor(piece, type_, Shape{rows.elements()}), rows, into, into_box);
    }
    return sum;
  }

  /// Copies the intersection of the range with `into_box`. With `check`, reads the whole range and compares its
  /// checksum; returns whether it matches.
  bool read(const Tensor& into, const Box& into_box, bool check) {
    const auto part = intersection(box_, into_box);
    if (!part) return true;
    summing_ = check;
    if (*part == box_ && into.dtype() == type_ && is_contiguous(box_, into_box))
      return straight(into, into_box) == range_.crc || !check;
    if (check) return through_buffer(*part, 0, box_.extent[0], into, into_box) == range_.crc;
    through_buffer(*part, part->begin[0] - box_.begin[0], part->extent[0], into, into_box);
    return true;
  }

 private:
  const File& file_;
  const Checkpoint::StoredRange& range_;
  DType type_;
  Box box_;
  bool summing_ = false;
};

}  // namespace

struct Checkpoint::Content {
  fs::path folder;
  Manifest manifest;
  Blobs blobs;
  std::mutex mapping;
  std::map<std::string, std::weak_ptr<const MappedFile>> mapped;  ///< files that somebody has mapped

  std::shared_ptr<const MappedFile> map(const std::string& file) {
    const std::lock_guard lock(mapping);
    auto known = mapped[file].lock();
    if (!known) mapped[file] = known = std::make_shared<const MappedFile>(folder / file);
    return known;
  }

  /// Calls `use` with the elements of a stored range in its mapped file; if it returns true, verifies their checksum.
  template <class Use>
  void use_mapped(const std::string& name, const StoredRange& range, const Use& use) {
    try {
      const auto file = map(range.file);
      const auto bytes = file->bytes().subspan(range.byte_offset, range.bytes);
      // A tensor has no read-only form; nobody writes the elements of this one.
      const std::span memory(const_cast<std::byte*>(bytes.data()), bytes.size());
      if (use(MappedTensor{file, Tensor(memory, tensor(name).dtype, range.extents)}) && crc32c(bytes) != range.crc)
        throw DamageError(text(file->path().string(), ": tensor '", name, "' at byte ", range.byte_offset,
                               ": its CRC is not the one it was saved with"));
      file->require_intact();
    } catch (const IoError& error) {
      throw DamageError(text(error.what(), " (tensor '", name, "')"));
    }
  }

  const Manifest::TensorEntry& tensor(const std::string& name) const {
    const auto found = manifest.tensors.find(name);
    if (found == manifest.tensors.end()) throw ConfigError(text(folder.string(), ": has no tensor '", name, "'"));
    return found->second;
  }
};

Checkpoint::Checkpoint(std::unique_ptr<Content> content) : content_(std::move(content)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

Checkpoint Checkpoint::open(const fs::path& folder) {
  if (!fs::is_directory(folder)) throw ConfigError(text(folder.string(), ": no such folder"));
  auto content = std::make_unique<Content>();
  content->folder = folder;
  const auto manifest_path = folder / "manifest.json";
  if (!fs::exists(manifest_path))
    throw DamageError(text(folder.string(), ": holds no manifest.json: no checkpoint, or a damaged one"));
  content->manifest = read_whole_manifest(folder);
  check_ranges(content->manifest, manifest_path.string());
  // The sizes alone: they tell a copy that was cut short at once. Checksums are compared as the elements are read.
  for (const auto& [name, file] : content->manifest.files) check_size(folder, name, file.bytes);
  content->blobs = read_blobs(folder, content->manifest);
  return Checkpoint(std::move(content));
}

const fs::path& Checkpoint::folder() const { return content_->folder; }
std::int64_t Checkpoint::iteration() const { return content_->manifest.iteration; }
bool Checkpoint::has(const std::string& name) const { return content_->manifest.tensors.count(name) != 0; }
const Shape& Checkpoint::shape(const std::string& name) const { return content_->tensor(name).global_shape; }
DType Checkpoint::dtype(const std::string& name) const { return content_->tensor(name).dtype; }
const Blobs& Checkpoint::blobs() const { return content_->blobs; }
const std::vector<Checkpoint::StoredRange>& Checkpoint::ranges(const std::string& name) const {
  return content_->tensor(name).ranges;
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : content_->manifest.tensors) names.push_back(name);
  return names;
}

const std::string& Checkpoint::blob(const std::string& name) const {
  const auto found = content_->blobs.find(name);
  if (found == content_->blobs.end()) throw ConfigError(text(folder().string(), ": has no blob '", name, "'"));
  return found->second;
}

std::uint64_t Checkpoint::bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [name, file] : content_->manifest.files) bytes += file.bytes;
  for (const auto& [name, blob] : content_->manifest.blobs) bytes += blob.bytes;
  return bytes;
}

void Checkpoint::must_fit(std::span<const TensorRange> wanted) const {
  std::string message;
  std::size_t problems = 0;
  std::set<std::string> told;
  for (const auto& range : wanted) {
    const bool here = has(range.name);
    if (here && shape(range.name) == range.global_shape) continue;
    if (!told.insert(range.name).second) continue;  // another part of the same tensor
    if (++problems > most_named_tensors) continue;
    message += text("\n  ", range.name, ": ", range.global_shape, " was expected, ",
                    here ? text(shape(range.name), " was saved") : "the checkpoint has no tensor of this name");
  }
  if (problems == 0) return;
  if (problems > most_named_tensors) message += text("\n  and ", problems - most_named_tensors, " more");
  throw ConfigError(text(folder().string(), ": is a checkpoint of another model:", message,
                         about_left_out().empty() ? "" : "\n  " + about_left_out(),
                         "\n  give the recipe of this checkpoint, or another checkpoint or run folder"));
}

std::string Checkpoint::about_left_out() const {
  const auto base = base_in(blobs());
  return base ? text(
                    "it was saved without its frozen parameters (training_config.save_frozen_parameters), which are "
                    "those of ",
                    base->name)
              : "";
}

std::optional<MappedTensor> Checkpoint::map(const TensorRange& range, bool check_crc) const {
  const auto& tensor = content_->tensor(range.name);
  const auto box = Box::of(range.offsets, range.tensor.shape());
  for (const auto& one : tensor.ranges) {
    const auto all = Box::of(one.offsets, one.extents);
    if (intersection(all, box) != box) continue;
    std::optional<MappedTensor> mapped;
    content_->use_mapped(range.name, one, [&](const MappedTensor& whole) {
      mapped = part_of(whole, all, box, range.tensor.dtype(), range.tensor.shape());
      return mapped && check_crc;
    });
    return mapped;
  }
  return std::nullopt;
}

std::optional<StoredMatrix> Checkpoint::stored(const TensorRange& range, bool check_crc) const {
  const auto& tensor = content_->tensor(range.name);
  const auto box = Box::of(range.offsets, range.tensor.shape());
  if (box.begin.size() != 2) return std::nullopt;
  StoredMatrix out{.width = box.extent[1], .blocks = {}, .files = {}};
  const auto end = box.begin[0] + box.extent[0];
  for (auto row = box.begin[0]; row < end;) {
    const auto from = row;
    for (const auto& one : tensor.ranges) {
      const auto all = Box::of(one.offsets, one.extents);
      const Box first{{row, box.begin[1]}, {1, box.extent[1]}};
      if (intersection(all, first) != first) continue;
      const auto rows = std::min(end, all.begin[0] + all.extent[0]) - row;
      bool fits = false;
      content_->use_mapped(range.name, one, [&](const MappedTensor& whole) {
        fits = append_rows(out, whole, row - all.begin[0], rows, box.begin[1] - all.begin[1]);
        return fits && check_crc;
      });
      if (!fits) return std::nullopt;
      row += rows;
      break;
    }
    if (row == from) return std::nullopt;
  }
  return out;
}

void Checkpoint::read(const TensorRange& into, const ReadOptions& options) const {
  const auto& stored = content_->tensor(into.name);
  must_fit(std::span(&into, 1));
  if (into.tensor.dtype() != stored.dtype && !options.convert)
    throw ConfigError(text(folder().string(), ": tensor '", into.name, "' was saved as ", name_of(stored.dtype), "; ",
                           name_of(into.tensor.dtype()), " was expected"));
  must(into.offsets.size() == into.global_shape.rank() && into.tensor.shape().rank() == into.global_shape.rank(),
       "a tensor range has one offset and one extent for each dim");
  for (std::size_t dim = 0; dim < into.offsets.size(); ++dim)
    must(into.offsets[dim] >= 0 && into.offsets[dim] + into.tensor.shape()[dim] <= into.global_shape[dim],
         "a tensor range lies in its tensor");
  const auto box = Box::of(into.offsets, into.tensor.shape());
  for (const auto& range : stored.ranges) {
    const auto path = folder() / range.file;
    bool right = false;
    try {
      if (!intersection(Box::of(range.offsets, range.extents), box)) continue;
      right = RangeReader(File::open(path), range, stored.dtype).read(into.tensor, box, options.check_crc);
    } catch (const IoError& error) {
      throw DamageError(text(error.what(), " (tensor '", into.name, "')"));
    }
    if (!right)
      throw DamageError(text(path.string(), ": tensor '", into.name, "' at byte ", range.byte_offset,
                             ": its CRC is not the one it was saved with"));
  }
}

void Checkpoint::verify() const {
  const auto complain = [&](const std::string& file, const std::string& what) {
    throw DamageError(text((folder() / file).string(), ": ", what, ": its CRC is not the one it was saved with"));
  };
  try {
    for (const auto& [name, file] : content_->manifest.files)
      if (sum_of(File::open(folder() / name), 0, file.header_bytes) != file.header_crc) complain(name, "header");
    for (const auto& [name, tensor] : content_->manifest.tensors)
      for (const auto& range : tensor.ranges)
        if (sum_of(File::open(folder() / range.file), range.byte_offset, range.bytes) != range.crc)
          complain(range.file, text("tensor '", name, "' at byte ", range.byte_offset));
  } catch (const IoError& error) {
    throw DamageError(error.what());
  }
}

}  // namespace tessera::checkpoint
