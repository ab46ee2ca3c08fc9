#include "framework/data/gpt/index_array.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <regex>

#include "framework/base/checked.h"

namespace tessera::data {
namespace {

constexpr std::string_view magic = "\x93NUMPY";
constexpr std::size_t huge_page = 2 << 20;

struct TypeFacts {
  const char* name;
  std::size_t bytes;
};
constexpr std::array<TypeFacts, 4> facts = {{{"<i2", 2}, {"<i4", 4}, {"<u4", 4}, {"<i8", 8}}};

const TypeFacts& facts_of(IndexType type) { return facts[static_cast<std::size_t>(type)]; }

/// The dictionary of a .npy file, as text, and where the values begin.
struct Header {
  std::string words;
  std::size_t values_at = 0;
};

std::optional<Header> header_in(std::span<const std::byte> bytes) {
  if (bytes.size() < 10 || std::memcmp(bytes.data(), magic.data(), magic.size()) != 0) return {};
  const auto version = static_cast<unsigned>(bytes[6]);
  if (version < 1 || version > 3) return {};
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  std::uint32_t length = 0;
  if (bytes.size() < 8 + length_bytes) return {};
  std::memcpy(&length, bytes.data() + 8, length_bytes);
  Header header;
  header.values_at = 8 + length_bytes + length;
  if (header.values_at > bytes.size()) return {};
  header.words.assign(reinterpret_cast<const char*>(bytes.data()) + 8 + length_bytes, length);
  return header;
}

std::optional<std::vector<std::int64_t>> shape_in(const std::string& words) {
  std::vector<std::int64_t> shape;
  const std::regex number("[0-9]{1,18}");
  for (std::sregex_iterator one(words.begin(), words.end(), number), end; one != end; ++one)
    shape.push_back(std::stoll(one->str()));
  return shape.empty() ? std::nullopt : std::optional(shape);
}

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

IndexArray IndexArray::map(const std::filesystem::path& file) {
  MappedFile mapped(file);
  const auto wrong = [&](const auto&... message) { return ConfigError(text(file.string(), ": ", message...)); };
  const auto header = header_in(mapped.bytes());
  if (!header) throw wrong("is no NumPy file, or cut short in its header");
  std::smatch descr, shape;
  const std::regex descr_rule("'descr': *'([^']*)'"), shape_rule("'shape': *\\(([^)]*)\\)");
  if (!std::regex_search(header->words, descr, descr_rule) || !std::regex_search(header->words, shape, shape_rule) ||
      header->words.find("'fortran_order': False") == std::string::npos)
    throw wrong("has the header '", header->words.substr(0, 100), "'; expected an array of integers in C's order");
  const auto type = std::find_if(facts.begin(), facts.end(), [&](const auto& f) { return descr[1] == f.name; });
  if (type == facts.end()) throw wrong("holds values of type ", descr[1].str(), "; expected <i2, <i4, <u4 or <i8");
  const auto extents = shape_in(shape[1]);
  if (!extents) throw wrong("has the shape (", shape[1].str(), "); expected at least one dimension");
  IndexArray out;
  out.type_ = static_cast<IndexType>(type - facts.begin());
  out.shape_ = *extents;
  const auto have = mapped.bytes().size() - header->values_at;
  try {
    out.size_ = product(out.shape_);
  } catch (const ConfigError&) {  // of checked_product, which knows no file
    throw wrong("has the shape ", shape_text(out.shape_), ", which is too large");
  }
  if (have % type->bytes != 0 || have / type->bytes != static_cast<std::size_t>(out.size_))
    throw wrong("has ", have, " bytes of values; its shape ", shape_text(out.shape_), " of ", type->name,
                " needs another number: it is cut short or damaged");
  if (header->values_at % type->bytes != 0) throw wrong("has values that are not aligned; write it with numpy.save");
  out.data_ = mapped.bytes().data() + header->values_at;
  out.file_.emplace(std::move(mapped));
  return out;
}

std::string IndexArray::npy_header() const {
  constexpr std::size_t alignment = 64, before = magic.size() + 4, most_digits = 21;
  std::string words =
      text("{'descr': '", numpy_name(type_), "', 'fortran_order': False, 'shape': ", shape_text(shape_), ", }");
  words.append(most_digits - std::min(most_digits, std::to_string(shape_.at(0)).size()), ' ');  // NumPy lets it grow
  words.append(alignment - (before + words.size() + 1) % alignment, ' ');
  words += '\n';
  std::string out(magic);
  out += '\1';
  out += '\0';
  const auto length = static_cast<std::uint16_t>(words.size());
  out.append(reinterpret_cast<const char*>(&length), sizeof length);
  return out + words;
}

}  // namespace tessera::data
