#include "framework/gpt/index_array.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "framework/base/checked.h"
#include "framework/gpt/npy_header.h"

namespace tessera::gpt {
namespace {

constexpr std::size_t huge_page = 2 << 20;
constexpr std::size_t most_type_shown = 40;

struct TypeFacts {
  const char* name;
  std::size_t bytes;
};
constexpr std::array<TypeFacts, 4> facts = {{{"<i2", 2}, {"<i4", 4}, {"<u4", 4}, {"<i8", 8}}};

const TypeFacts& facts_of(IndexType type) { return facts[static_cast<std::size_t>(type)]; }

std::int64_t product(const std::vector<std::int64_t>& shape) {
  std::int64_t all = 1;
  for (const auto extent : shape) all = checked_product({{"values", all}, {"of each", extent}});
  return all;
}

}  // namespace

const char* numpy_name(IndexType type) { return facts_of(type).name; }
std::size_t bytes_of(IndexType type) { return facts_of(type).bytes; }

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string out = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) out += text(i > 0 ? ", " : "", shape[i]);
  return out + (shape.size() == 1 ? ",)" : ")");
}

void UnmapPages::operator()(void* memory) const { ::munmap(memory, bytes); }

IndexArray::IndexArray(IndexType type, std::vector<std::int64_t> shape) : type_(type), shape_(std::move(shape)) {
  size_ = product(shape_);
  const auto bytes = static_cast<std::size_t>(
      checked_product({{"values", size_}, {"bytes of each", static_cast<std::int64_t>(bytes_of(type_))}}));
  if (bytes == 0) return;
  // Pages of its own, so that the memory of an index goes back to the system as soon as its file is written.
  auto* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw Error(text("an index of ", bytes, " bytes does not fit into memory"));
  memory_ = {memory, UnmapPages{bytes}};
  if (bytes >= 2 * huge_page) ::madvise(memory, bytes, MADV_HUGEPAGE);  // shuffling touches it everywhere
  data_ = memory;
}

/// Maps the values behind `header`, which it checks.
IndexArray IndexArray::of(const NpyHeader& header, MappedFile mapped) {
  if (header.fortran_order) throw ConfigError("is an array in Fortran order; expected C order");
  const auto type = std::find_if(facts.begin(), facts.end(), [&](const auto& f) { return header.type == f.name; });
  if (type == facts.end())
    throw ConfigError(
        text("holds values of type '", header.type.substr(0, most_type_shown), "'; expected <i2, <i4, <u4 or <i8"));
  if (header.shape.empty()) throw ConfigError("has the shape (); expected at least one dimension");
  IndexArray out;
  out.type_ = static_cast<IndexType>(type - facts.begin());
  out.shape_ = header.shape;
  try {
    out.size_ = product(out.shape_);
  } catch (const ConfigError&) {  // of checked_product, which does not know the shape
    throw ConfigError(text("has the shape ", shape_text(out.shape_), ", which is too large"));
  }
  const auto have = mapped.bytes().size() - header.values_at;
  if (have % type->bytes != 0 || have / type->bytes != static_cast<std::size_t>(out.size_))
    throw ConfigError(text("has ", have, " bytes of values; its shape ", shape_text(out.shape_), " of ", type->name,
                           " needs another number: it is cut short or damaged"));
  if (header.values_at % type->bytes != 0)
    throw ConfigError("has values that are not aligned; write it with numpy.save");
  out.data_ = mapped.bytes().data() + header.values_at;
  out.file_.emplace(std::move(mapped));
  return out;
}

IndexArray IndexArray::map(const std::filesystem::path& file) {
  MappedFile mapped(file);
  try {
    const auto header = read_intact(mapped, [&] { return parse_npy_header(mapped.bytes()); });
    return of(header, std::move(mapped));
  } catch (const ConfigError& error) {
    throw ConfigError(text(file.string(), ": ", error.what()));
  }
}

std::string IndexArray::npy_header() const {
  constexpr std::size_t alignment = 64, before = npy_magic.size() + 4, most_digits = 21;
  std::string words =
      text("{'descr': '", numpy_name(type_), "', 'fortran_order': False, 'shape': ", shape_text(shape_), ", }");
  words.append(most_digits - std::min(most_digits, std::to_string(shape_.at(0)).size()), ' ');  // NumPy lets it grow
  words.append(alignment - (before + words.size() + 1) % alignment, ' ');
  words += '\n';
  std::string out(npy_magic);
  out += '\1';
  out += '\0';
  const auto length = static_cast<std::uint16_t>(words.size());
  out.append(reinterpret_cast<const char*>(&length), sizeof length);
  return out + words;
}

}  // namespace tessera::gpt
