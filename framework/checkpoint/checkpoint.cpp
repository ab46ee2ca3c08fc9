#include "framework/checkpoint/checkpoint.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <tuple>

#include "framework/base/crc32c.h"
#include "framework/base/files.h"
#include "framework/checkpoint/blobs.h"
#include "framework/checkpoint/frozen_base.h"
#include "framework/checkpoint/manifest.h"
#include "framework/checkpoint/range_stream.h"
#include "framework/tensor/box.h"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_named_tensors = 5;

/// The parts of a checkpoint one after the other are a line that its readers divide into equal pieces. Where a reader
/// begins and ends within a part, its position counts by bytes.
struct PlaceOnLine {
  std::size_t which, of;    ///< the reader, and the number of readers
  std::size_t part, parts;  ///< the part, and the number of parts

  /// Whether what lies at byte `at` of `all` bytes of the part is for the reader.
  bool holds(std::uint64_t at, std::uint64_t all) const {
    return (part * of + (all == 0 ? 0 : at * of / all)) / parts == which;
  }
};

std::vector<NamedRange> ranges_in_order(const Manifest& manifest,
                                        const std::function<bool(const std::string&)>& wanted) {
  std::vector<NamedRange> all;
  for (const auto& [name, tensor] : manifest.tensors)
    if (wanted(name))
      for (const auto& range : tensor.ranges) all.push_back({name, tensor.dtype, range});
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return std::tie(a.range.file, a.range.byte_offset) < std::tie(b.range.file, b.range.byte_offset);
  });
  return all;
}

void add_share(Checkpoint::Share& share, const Manifest& manifest, const PlaceOnLine& place,
               const std::function<bool(const std::string&)>& wanted) {
  const auto all = ranges_in_order(manifest, wanted);
  std::uint64_t total = 0, before = 0;
  for (const auto& range : all) total += range.range.bytes;
  std::map<std::string, std::uint64_t> places;  // of files: those of their first ranges
  for (const auto& range : all) {
    const auto middle = before + range.range.bytes / 2;
    places.emplace(range.range.file, middle);
    if (place.holds(middle, total)) share.ranges.push_back(range);
    before += range.range.bytes;
  }
  for (const auto& [name, file] : manifest.files)
    if (place.holds(places[name], total)) share.headers.push_back({name, file.header_bytes, file.header_crc});
}

}  // namespace

struct Checkpoint::Content {
  fs::path folder;
  Manifest manifest;
  Blobs blobs;
  std::mutex opening;
  std::map<std::size_t, Manifest> parts;                 ///< that were opened, by their index
  std::map<std::string, Manifest::TensorEntry> tensors;  ///< that were found in parts
  std::mutex mapping;
  std::map<std::string, std::weak_ptr<const MappedFile>> mapped;  ///< files that somebody has mapped
  std::mutex verifying;
  std::set<std::pair<std::string, std::uint64_t>> verified;  ///< file and byte of ranges read with ReadOptions::once

  bool is_verified(const StoredRange& range) {
    const std::lock_guard lock(verifying);
    return verified.contains({range.file, range.byte_offset});
  }
  void set_verified(const StoredRange& range) {
    const std::lock_guard lock(verifying);
    verified.emplace(range.file, range.byte_offset);
  }

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

  /// The manifest of a part; the files that it names have their sizes. `opening` is locked.
  const Manifest& part(std::size_t index) {
    if (const auto known = parts.find(index); known != parts.end()) return known->second;
    const auto named = std::next(manifest.parts.begin(), static_cast<std::ptrdiff_t>(index));
    if (const auto why = about_other_host(manifest, folder, named->first); !why.empty()) throw ConfigError(why);
    auto read = read_part(folder, named->first, named->second);
    for (const auto& [name, file] : read.files) check_size(folder, name, file.bytes);
    return parts.emplace(index, std::move(read)).first->second;
  }

  const Manifest::TensorEntry& find_in_parts(const std::string& name, const Manifest::IndexEntry& where) {
    const std::lock_guard lock(opening);
    if (const auto known = tensors.find(name); known != tensors.end()) return known->second;
    Manifest::TensorEntry all{where.dtype, where.global_shape, {}};
    for (const auto index : where.parts) {
      const auto found = part(index).tensors.find(name);
      if (found == part(index).tensors.end())
        throw DamageError(text(folder.string(), ": tensor '", name, "' is not in the part that the index names"));
      all.ranges.insert(all.ranges.end(), found->second.ranges.begin(), found->second.ranges.end());
    }
    if (const auto problem = coverage_problem(all); !problem.empty())
      throw DamageError(text(folder.string(), ": tensor '", name, "': ", problem));
    return tensors.emplace(name, std::move(all)).first->second;
  }

  const Manifest::TensorEntry& tensor(const std::string& name) {
    if (const auto found = manifest.tensors.find(name); found != manifest.tensors.end()) return found->second;
    const auto where = manifest.index.find(name);
    if (where == manifest.index.end()) throw ConfigError(text(folder.string(), ": has no tensor '", name, "'"));
    return find_in_parts(name, where->second);
  }
};

Checkpoint::Checkpoint(std::unique_ptr<Content> content) : content_(std::move(content)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

Checkpoint Checkpoint::open_index(const fs::path& folder) {
  if (!fs::is_directory(folder)) throw ConfigError(text(folder.string(), ": no such folder"));
  auto content = std::make_unique<Content>();
  content->folder = folder;
  const auto path = folder / "manifest.json";
  if (!fs::exists(path))
    throw DamageError(text(folder.string(), ": holds no manifest.json: no checkpoint, or a damaged one"));
  auto& manifest = content->manifest = read_manifest(read_file(path), path.string());
  if (manifest.index.empty()) {  // one writer, or several of an earlier version of the program
    merge_parts(manifest, folder);
    check_ranges(manifest, path.string());
  }
  // The sizes alone: they tell a copy that was cut short at once. Checksums are compared as the elements are read.
  for (const auto& [name, file] : manifest.files) check_size(folder, name, file.bytes);
  content->blobs = read_blobs(folder, manifest);
  return Checkpoint(std::move(content));
}

Checkpoint Checkpoint::open(const fs::path& folder) {
  auto checkpoint = open_index(folder);
  auto& content = *checkpoint.content_;
  if (content.manifest.index.empty()) return checkpoint;
  content.manifest.index.clear();
  merge_parts(content.manifest, folder);
  check_ranges(content.manifest, (folder / "manifest.json").string());
  for (const auto& [name, file] : content.manifest.files) check_size(folder, name, file.bytes);
  return checkpoint;
}

const fs::path& Checkpoint::folder() const { return content_->folder; }
std::int64_t Checkpoint::iteration() const { return content_->manifest.iteration; }
bool Checkpoint::has(const std::string& name) const {
  return content_->manifest.tensors.count(name) + content_->manifest.index.count(name) != 0;
}
const Shape& Checkpoint::shape(const std::string& name) const {
  const auto found = content_->manifest.index.find(name);
  return found != content_->manifest.index.end() ? found->second.global_shape : content_->tensor(name).global_shape;
}
DType Checkpoint::dtype(const std::string& name) const {
  const auto found = content_->manifest.index.find(name);
  return found != content_->manifest.index.end() ? found->second.dtype : content_->tensor(name).dtype;
}
const Blobs& Checkpoint::blobs() const { return content_->blobs; }
const std::vector<Checkpoint::StoredRange>& Checkpoint::ranges(const std::string& name) const {
  return content_->tensor(name).ranges;
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : content_->manifest.tensors) names.push_back(name);
  for (const auto& [name, tensor] : content_->manifest.index) names.push_back(name);
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
  if (is_divided()) return std::nullopt;  // its file can be on another host
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
  if (is_divided()) return std::nullopt;
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
    if (!intersection(Box::of(range.offsets, range.extents), box)) continue;
    try {
      const bool check = options.check_crc && !(options.once && content_->is_verified(range));
      read_range(File::open(folder() / range.file), {into.name, stored.dtype, range}, into, check);
      if (check && options.once) content_->set_verified(range);
    } catch (const IoError& error) {
      throw DamageError(text(error.what(), " (tensor '", into.name, "')"));
    }
  }
}

Checkpoint::Share Checkpoint::share(std::size_t which, std::size_t of,
                                    const std::function<bool(const std::string&)>& wanted) const {
  Share out;
  const auto& manifest = content_->manifest;
  if (manifest.index.empty()) {
    add_share(out, manifest, {which, of, 0, 1}, wanted);
    return out;
  }
  std::vector<std::size_t> all(manifest.parts.size());
  std::iota(all.begin(), all.end(), 0);
  return share(which, of, all, wanted);
}

Checkpoint::Share Checkpoint::share(std::size_t which, std::size_t of, const std::vector<std::size_t>& parts,
                                    const std::function<bool(const std::string&)>& wanted) const {
  Share out;
  const std::lock_guard lock(content_->opening);
  const auto count = parts.size();
  for (auto at = which * count / of; at < count && at <= (which * count + count - 1) / of; ++at)
    add_share(out, content_->part(parts[at]), {which, of, at, count}, wanted);
  return out;
}

bool Checkpoint::is_divided() const { return !content_->manifest.hosts.empty(); }

std::vector<bool> Checkpoint::parts_here() const {
  std::vector<bool> here;
  for (const auto& [name, part] : content_->manifest.parts) here.push_back(fs::exists(folder() / name));
  return here;
}

void Checkpoint::verify() const {
  const auto all = share(0, 1, [](const auto&) { return true; });
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(read_piece_bytes);
  try {
    for (const auto& one : all.headers) header_must_match(File::open(folder() / one.file), one.bytes, one.crc);
    for (const auto& range : all.ranges) {
      const auto file = File::open(folder() / range.range.file);
      RangeStream stream(file, range);
      while (!stream.ended()) stream.read({buffer.get(), stream.bytes()}, true);
      stream.must_match();
    }
  } catch (const IoError& error) {
    throw DamageError(error.what());
  }
}

}  // namespace tessera::checkpoint
