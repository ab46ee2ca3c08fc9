#include "framework/interop/torch/torch_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "framework/base/crc32.h"
#include "framework/base/mapped_pages.h"
#include "framework/base/memory_limit.h"
#include "framework/checkpoint/checkpoint.h"

namespace tessera::torch {
namespace {

namespace fs = std::filesystem;
using Kind = PickleNode::Kind;

constexpr const char* pickle_name = "data.pkl";
constexpr const char* appended_folder = "archive/";  // as torch names it where an archive has no file of its own

struct StorageType {
  const char* name;
  DType type;
};
constexpr StorageType storage_types[] = {{"FloatStorage", DType::float32}, {"DoubleStorage", DType::float64},
                                         {"HalfStorage", DType::float16},  {"BFloat16Storage", DType::bfloat16},
                                         {"LongStorage", DType::int64},    {"IntStorage", DType::int32},
                                         {"ByteStorage", DType::uint8},    {"BoolStorage", DType::uint8}};

/// "model_optim_rng/" of "model_optim_rng/data.pkl".
std::string folder_in(const std::map<std::string, ZipEntry>& entries, const std::string& speaker) {
  for (const auto& [name, entry] : entries) {
    const auto slash = name.find('/');
    if (slash != std::string::npos && name.substr(slash + 1) == pickle_name) return name.substr(0, slash + 1);
  }
  throw ConfigError(text(speaker, ": holds no ", pickle_name, ": not written by torch.save, or by one before 1.6"));
}

/// A list of counts: a shape, strides.
std::vector<std::int64_t> counts(const PickleNode& node, const std::string& speaker) {
  std::vector<std::int64_t> out;
  if (node.kind != Kind::tuple) throw ConfigError(text(speaker, ": its shape is not a tuple"));
  for (const auto* item : node.items) {
    if (item->kind != Kind::integer || item->integer < 0)
      throw ConfigError(text(speaker, ": its shape or strides have ",
                             item->kind == Kind::integer ? text("the entry ", item->integer)
                                                         : std::string("an entry that is not an integer"),
                             "; expected integers of at least 0; the file is damaged"));
    out.push_back(item->integer);
  }
  return out;
}

bool calls(const PickleNode& node, const char* callee, std::size_t arguments) {
  return node.kind == Kind::call && node.items[0]->text == callee && node.items[1]->items.size() >= arguments;
}

/// What _rebuild_tensor_v2 is called with: by itself, for a parameter's data, or for a tensor with attributes.
const std::vector<const PickleNode*>* rebuilt(const PickleNode& node) {
  constexpr const char* plain = "torch._utils _rebuild_tensor_v2";
  const auto* inner = calls(node, "torch._utils _rebuild_parameter", 1) ? node.items[1]->items[0] : &node;
  if (calls(*inner, plain, 4)) return &inner->items[1]->items;
  if (!calls(*inner, "torch._tensor _rebuild_from_type_v2", 3)) return nullptr;
  const auto& given = inner->items[1]->items;
  return given[0]->text == plain && given[2]->kind == Kind::tuple && given[2]->items.size() >= 4 ? &given[2]->items
                                                                                                 : nullptr;
}

bool is_contiguous(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides) {
  if (shape.size() != strides.size()) return false;
  std::int64_t expected = 1;
  for (std::size_t dim = shape.size(); dim-- > 0;) {
    if (shape[dim] > 1 && strides[dim] != expected) return false;
    if (__builtin_mul_overflow(expected, std::max<std::int64_t>(shape[dim], 1), &expected)) return false;
  }
  return true;
}

/// The bytes from the first to behind the last element; false if elements share memory, or the number does not fit into
/// 64 bits.
bool bytes_spanned(const std::vector<std::int64_t>& dims, const std::vector<std::int64_t>& strides, std::size_t size,
                   std::uint64_t& bytes) {
  std::uint64_t elements = 1, last = 0;
  for (std::size_t dim = 0; dim < dims.size(); ++dim)
    if (__builtin_mul_overflow(elements, static_cast<std::uint64_t>(dims[dim]), &elements)) return false;
  for (std::size_t dim = 0; dim < dims.size() && elements > 0; ++dim) {
    std::uint64_t far = 0;
    if (__builtin_mul_overflow(static_cast<std::uint64_t>(dims[dim] - 1), static_cast<std::uint64_t>(strides[dim]),
                               &far) ||
        __builtin_add_overflow(last, far, &last))
      return false;
  }
  bytes = 0;
  if (elements == 0) return true;
  if (__builtin_add_overflow(last, 1, &last) || __builtin_mul_overflow(last, size, &bytes)) return false;
  return elements <= last;  // no two share memory
}

}  // namespace

TorchFile::TorchFile(const fs::path& path) : TorchFile(std::make_shared<const MappedFile>(path), 0, 0, path.string()) {}

TorchFile::TorchFile(std::shared_ptr<const MappedFile> file, std::uint64_t begin, std::uint64_t bytes, std::string name)
    : name_(std::move(name)),
      file_(std::move(file)),
      bytes_(bytes == 0 ? file_->bytes() : file_->bytes().subspan(begin, bytes)),
      entries_(read_intact(*file_, [&] { return read_zip_directory(bytes_, name_); })),
      folder_(folder_in_archive()),
      pickle_(read_pickle()) {}

/// The folder of all entries; throws if they are not of this machine's byte order.
std::string TorchFile::folder_in_archive() const {
  auto folder = folder_in(entries_, name_);
  const auto found = entries_.find(folder + "byteorder");
  if (found == entries_.end()) return folder;
  const auto words = bytes_of(found->second);
  const std::string order(reinterpret_cast<const char*>(words.data()), words.size());
  if (order != "little") throw ConfigError(text(name_, ": byteorder is '", order, "'; little was expected"));
  return folder;
}

Pickle TorchFile::read_pickle() const {
  const auto words = bytes_of(entries_.at(folder_ + pickle_name));
  return within_memory(name_, [&] { return read_intact(*file_, [&] { return Pickle(words, name_); }); });
}

void TorchFile::verify() const {
  for (const auto& [name, entry] : entries_) verify_entry(name, entry);
}

void TorchFile::verify_entry(const std::string& name, const ZipEntry& entry) const {
  const auto bytes = bytes_of(entry);
  constexpr std::size_t most = std::size_t{4} << 20;  // mapped memory at a time
  std::uint32_t crc = 0;
  for (std::size_t at = 0; at < bytes.size(); at += most) {
    crc = crc32_ieee(bytes.subspan(at, std::min(most, bytes.size() - at)), crc);
    mapped_pages_used();
  }
  if (crc == entry.crc) return;
  file_->require_intact();
  throw checkpoint::DamageError(text(name_, ": '", name, "': its CRC is not the one it was saved with"));
}

void TorchFile::verify_once(const std::string& name) const {
  if (!checked_) return;
  const std::lock_guard lock(checked_->mutex);
  if (checked_->entries.count(name) != 0) return;
  verify_entry(name, entries_.at(name));
  checked_->entries.insert(name);
}

bool TorchFile::is_tensor(const PickleNode& node) { return rebuilt(node) != nullptr; }

TorchFile::Located TorchFile::locate(const PickleNode& node, const std::string& what) const {
  const auto speaker = text(name_, ": ", what);
  const auto refuse = [&](const auto&... message) { throw ConfigError(text(speaker, ": ", message...)); };
  const auto* given = rebuilt(node);
  if (given == nullptr) refuse("is not a tensor");
  const auto& arguments = *given;
  const auto& storage = *arguments[0];
  if (storage.kind != Kind::persistent || storage.items[0]->kind != Kind::tuple || storage.items[0]->items.size() < 5 ||
      storage.items[0]->items[1]->kind != Kind::global || arguments[1]->kind != Kind::integer)
    refuse("its storage is none of torch");
  const auto& id = storage.items[0]->items;
  const auto* type = std::find_if(std::begin(storage_types), std::end(storage_types),
                                  [&](const auto& one) { return id[1]->text == text("torch ", one.name); });
  if (type == std::end(storage_types)) refuse("elements of '", id[1]->text, "' are not read");
  Located out{type->type, counts(*arguments[2], speaker), counts(*arguments[3], speaker), {}, {}};
  if (out.dims.size() > Shape::most_dims) refuse(out.dims.size(), " dims; at most ", Shape::most_dims, " are read");
  if (out.dims.size() != out.strides.size())
    refuse("has ", out.dims.size(), " dims, but ", out.strides.size(), " strides");
  out.entry = folder_ + "data/" + id[2]->text;
  const auto found = entries_.find(out.entry);
  if (found == entries_.end()) refuse("its storage '", id[2]->text, "' is missing");
  const auto bytes = bytes_of(found->second);
  std::uint64_t begin = static_cast<std::uint64_t>(arguments[1]->integer), needed = 0;
  if (!bytes_spanned(out.dims, out.strides, size_of(type->type), needed)) refuse("its shape is impossible");
  if (arguments[1]->integer < 0 || __builtin_mul_overflow(begin, size_of(type->type), &begin) || begin > bytes.size() ||
      needed > bytes.size() - begin)
    refuse("needs ", needed, " bytes from ", begin, " of a storage of ", bytes.size());
  file_->require_pages();
  out.bytes = bytes.subspan(begin, needed);
  return out;
}

Tensor TorchFile::tensor(const PickleNode& node, const std::string& what) const {
  const auto found = locate(node, what);
  if (!is_contiguous(found.dims, found.strides))
    throw ConfigError(text(name_, ": ", what, ": its elements do not lie one after the other"));
  verify_once(found.entry);
  auto* data = const_cast<std::byte*>(found.bytes.data());  // read-only memory, as a tensor of files is
  return {std::span(data, found.bytes.size()), found.type, Shape(found.dims)};
}

Tensor TorchFile::header(const PickleNode& node, const std::string& what) const {
  const auto found = locate(node, what);
  return Tensor::without_elements(found.type, Shape(found.dims));
}

void TorchFile::read(const PickleNode& node, const std::string& what, std::span<std::byte> into) const {
  const auto found = locate(node, what);
  const auto size = size_of(found.type);
  const auto elements = static_cast<std::size_t>(Shape(found.dims).elements());
  must(into.size() == elements * size, "the memory for a tensor holds its elements");
  verify_once(found.entry);
  if (is_contiguous(found.dims, found.strides)) {
    if (!into.empty()) std::memcpy(into.data(), found.bytes.data(), into.size());
    return;
  }
  std::vector<std::int64_t> at(found.dims.size(), 0);
  for (std::size_t i = 0; i < elements; ++i) {
    std::int64_t place = 0;
    for (std::size_t dim = 0; dim < at.size(); ++dim) place += at[dim] * found.strides[dim];
    std::memcpy(into.data() + i * size, found.bytes.data() + static_cast<std::size_t>(place) * size, size);
    for (auto dim = at.size(); dim-- > 0 && ++at[dim] == found.dims[dim];) at[dim] = 0;
  }
}

void TorchFileWriter::tensor(const Tensor& tensor) {
  this->tensor(tensor.dtype(), tensor.shape(), Elements([tensor] { return std::as_bytes(tensor.raw()); }));
}

void TorchFileWriter::tensor(DType dtype, const Shape& shape, const Elements& elements) {
  tensor(dtype, shape, [elements](const ArchiveWriter::Sink& sink) { sink(elements()); });
}

void TorchFileWriter::tensor(DType dtype, const Shape& shape, ArchiveWriter::Stream elements) {
  const auto* type = std::find_if(std::begin(storage_types), std::end(storage_types),
                                  [&](const auto& one) { return one.type == dtype; });
  must(type != std::end(storage_types), "every element type has a storage of torch");
  auto& p = pickle;
  p.global("torch._utils", "_rebuild_tensor_v2");
  p.mark();
  p.mark();  // the id of its storage
  p.text("storage");
  p.global("torch", type->name);
  p.text(std::to_string(storages_.size()));
  p.text("cpu");
  p.integer(shape.elements());
  p.tuple();
  p.persistent();
  p.integer(0);
  p.mark();
  for (const auto dim : shape.dims()) p.integer(dim);
  p.tuple();
  p.mark();
  const auto dims = shape.dims();
  for (std::size_t dim = 0; dim < dims.size(); ++dim) {
    std::int64_t stride = 1;
    for (std::size_t inner = dim + 1; inner < dims.size(); ++inner) stride *= dims[inner];
    p.integer(stride);
  }
  p.tuple();
  p.boolean(false);
  p.global("collections", "OrderedDict");
  p.empty_tuple();
  p.call();
  p.tuple();
  p.call();
  storages_.push_back({static_cast<std::uint64_t>(shape.elements()) * size_of(dtype), std::move(elements)});
}

void TorchFileWriter::put(ArchiveWriter& archive, const std::string& folder) const {
  archive.add(folder + pickle_name, pickle.finish());
  archive.add(folder + "byteorder", "little");
  for (std::size_t i = 0; i < storages_.size(); ++i) {
    archive.add(text(folder, "data/", i), storages_[i].bytes, storages_[i].elements);
    mapped_pages_used();
  }
  archive.add(folder + "version", "3\n");
}

void TorchFileWriter::write(const fs::path& path) const {
  const auto folder = path.stem().string() + "/";
  ArchiveWriter counted(nullptr);
  put(counted, folder);
  ZipWriter zip(path, counted.finish());
  put(zip.archive(), folder);
  zip.finish();
}

std::uint64_t TorchFileWriter::append_to(File& file) const {
  ArchiveWriter archive(&file);
  put(archive, appended_folder);
  return archive.finish();
}

std::uint64_t TorchFileWriter::bytes() const {
  ArchiveWriter archive(nullptr);
  put(archive, appended_folder);
  return archive.finish();
}

}  // namespace tessera::torch
