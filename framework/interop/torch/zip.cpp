#include "framework/interop/torch/zip.h"

#include <algorithm>
#include <array>

#include "framework/base/crc32.h"

namespace tessera::torch {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t entry_mark = 0x04034B50, directory_mark = 0x02014B50, end_mark = 0x06054B50,
                        end64_mark = 0x06064B50, end64_locator_mark = 0x07064B50, descriptor_mark = 0x08074B50;
constexpr std::uint64_t end_bytes = 22, locator_bytes = 20, directory_entry_bytes = 46, entry_bytes = 30;
constexpr std::uint64_t most_entries = 1'000'000, longest_name = 4096, alignment = 64;
constexpr std::uint32_t none32 = 0xFFFFFFFF;
constexpr std::uint64_t sizes_follow = 8;                  // flag of an entry: checksum and sizes stand behind its data
constexpr std::size_t piece_bytes = std::size_t{1} << 18;  // checksummed and written while it is in the cache

/// Little-endian numbers at places that may lie outside.
class Reader {
 public:
  Reader(std::span<const std::byte> bytes, const std::string& speaker) : bytes_(bytes), speaker_(speaker) {}

  std::uint64_t number(std::uint64_t at, std::size_t size) const {
    inside(at, size);
    std::uint64_t out = 0;
    for (std::size_t i = size; i-- > 0;) out = out << 8 | std::to_integer<std::uint64_t>(bytes_[at + i]);
    return out;
  }
  std::string words(std::uint64_t at, std::uint64_t size) const {
    inside(at, size);
    return {reinterpret_cast<const char*>(bytes_.data()) + at, static_cast<std::size_t>(size)};
  }
  void inside(std::uint64_t at, std::uint64_t size) const {
    if (at > bytes_.size() || size > bytes_.size() - at)
      refuse("byte ", at, " and the ", size, " from there are asked for, but it has ", bytes_.size(),
             ": cut short or damaged");
  }
  template <class... Words>
  [[noreturn]] void refuse(const Words&... message) const {
    throw ConfigError(text(speaker_, ": as an archive: ", message...));
  }
  std::uint64_t size() const { return bytes_.size(); }

 private:
  std::span<const std::byte> bytes_;
  const std::string& speaker_;
};

struct Directory {
  std::uint64_t at, entries;
};

Directory find_directory(const Reader& in) {
  if (in.size() < end_bytes) in.refuse("it has ", in.size(), " bytes; no zip archive is so short");
  const auto lowest = in.size() - std::min<std::uint64_t>(in.size(), end_bytes + 65535);
  for (auto at = in.size() - end_bytes + 1; at-- > lowest;) {
    if (in.number(at, 4) != end_mark) continue;
    Directory out{in.number(at + 16, 4), in.number(at + 10, 2)};
    if (at >= locator_bytes && in.number(at - locator_bytes, 4) == end64_locator_mark) {
      const auto end64 = in.number(at - locator_bytes + 8, 8);
      if (in.number(end64, 4) != end64_mark) in.refuse("its 64-bit end is not where it should be");
      out = {in.number(end64 + 48, 8), in.number(end64 + 32, 8)};
    }
    return out;
  }
  in.refuse("it has no end; no zip archive, or cut short");
}

/// Sizes and place that do not fit 32 bits stand in the extra field 1.
void read_wide(const Reader& in, std::uint64_t extra, std::uint64_t extra_bytes, std::array<std::uint64_t*, 3> wanted) {
  for (auto at = extra; at + 4 <= extra + extra_bytes;) {
    const auto kind = in.number(at, 2), size = in.number(at + 2, 2);
    if (kind == 1) {
      auto next = at + 4;
      for (auto* value : wanted)
        if (*value == none32) {
          *value = in.number(next, 8);
          next += 8;
        }
      return;
    }
    at += 4 + size;
  }
}

ZipEntry read_entry(const Reader& in, std::uint64_t at, const std::string& name) {
  if ((in.number(at + 8, 2) & 1) != 0) in.refuse("'", name, "' is encrypted");
  if (in.number(at + 10, 2) != 0) in.refuse("'", name, "' is compressed; torch.save stores without compression");
  std::uint64_t packed = in.number(at + 20, 4), bytes = in.number(at + 24, 4), header = in.number(at + 42, 4);
  const auto name_bytes = in.number(at + 28, 2), extra_bytes = in.number(at + 30, 2);
  read_wide(in, at + directory_entry_bytes + name_bytes, extra_bytes, {&bytes, &packed, &header});
  if (packed != bytes) in.refuse("'", name, "' has two sizes, ", packed, " and ", bytes);
  if (in.number(header, 4) != entry_mark) in.refuse("'", name, "' is not where it should be");
  const auto begin = header + entry_bytes + in.number(header + 26, 2) + in.number(header + 28, 2);
  in.inside(begin, bytes);
  return {begin, bytes, static_cast<std::uint32_t>(in.number(at + 16, 4))};
}

void append(std::string& out, std::uint64_t value, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i, value >>= 8) out += static_cast<char>(value & 255);
}

}  // namespace

std::map<std::string, ZipEntry> read_zip_directory(std::span<const std::byte> archive, const std::string& speaker) {
  const Reader in(archive, speaker);
  const auto directory = find_directory(in);
  if (directory.entries > most_entries) in.refuse(directory.entries, " entries; at most ", most_entries, " are read");
  std::map<std::string, ZipEntry> entries;
  auto at = directory.at;
  for (std::uint64_t i = 0; i < directory.entries; ++i) {
    if (in.number(at, 4) != directory_mark) in.refuse("its directory is damaged at entry ", i);
    const auto name_bytes = in.number(at + 28, 2);
    if (name_bytes > longest_name) in.refuse("a name of ", name_bytes, " bytes");
    const auto name = in.words(at + directory_entry_bytes, name_bytes);
    if (!entries.emplace(name, read_entry(in, at, name)).second) in.refuse("'", name, "' is there twice");
    at += directory_entry_bytes + name_bytes + in.number(at + 30, 2) + in.number(at + 32, 2);
  }
  return entries;
}

void ArchiveWriter::put(std::span<const std::byte> bytes) {
  if (file_ != nullptr) file_->write(bytes);
  at_ += bytes.size();
}

void ArchiveWriter::put(const std::string& words) { put(std::as_bytes(std::span(words.data(), words.size()))); }

void ArchiveWriter::add(const std::string& name, std::string_view words) {
  add(name, std::as_bytes(std::span(words.data(), words.size())));
}

void ArchiveWriter::add(const std::string& name, std::span<const std::byte> bytes) {
  add(name, bytes.size(), [bytes](const Sink& sink) {
    for (std::size_t first = 0; first < bytes.size(); first += piece_bytes)
      sink(bytes.subspan(first, std::min(piece_bytes, bytes.size() - first)));
  });
}

void ArchiveWriter::begin(const std::string& name, bool wide) {
  // What is left to the next multiple of 64 is filled by an extra field of its own, "FB" as torch calls it.
  std::string extra;
  if (wide) {
    append(extra, 1, 2);
    append(extra, 16, 2);
    append(extra, 0, 8 + 8);
  }
  const auto before = at_ + entry_bytes + name.size() + extra.size() + 4;
  const auto padding = (alignment - before % alignment) % alignment;
  append(extra, 0x4246, 2);
  append(extra, padding, 2);
  extra.append(static_cast<std::size_t>(padding), 'Z');
  std::string header;
  append(header, entry_mark, 4);
  append(header, wide ? 45 : 20, 2);
  append(header, sizes_follow, 2);
  append(header, 0, 2 + 2 + 2);  // stored, no time
  append(header, 0, 4);          // the checksum follows
  append(header, wide ? none32 : 0, 4);
  append(header, wide ? none32 : 0, 4);
  append(header, name.size(), 2);
  append(header, extra.size(), 2);
  put(header + name + extra);
}

void ArchiveWriter::add(const std::string& name, std::uint64_t bytes, const Stream& stream) {
  Written entry{name, at_, bytes, 0};
  const bool wide = bytes >= none32;
  begin(name, wide);
  const auto first = at_;
  if (file_ == nullptr) {
    at_ += bytes;
  } else {
    stream([&](std::span<const std::byte> piece) {
      entry.crc = crc32_ieee(piece, entry.crc);
      put(piece);
    });
    must(at_ - first == bytes, "a stream gives as many bytes as were announced");
  }
  std::string descriptor;
  append(descriptor, descriptor_mark, 4);
  append(descriptor, entry.crc, 4);
  append(descriptor, bytes, wide ? 8 : 4);
  append(descriptor, bytes, wide ? 8 : 4);
  put(descriptor);
  entries_.push_back(std::move(entry));
}

std::uint64_t ArchiveWriter::finish() {
  std::string out;
  for (const auto& entry : entries_) {
    std::string extra;
    const bool wide = entry.bytes >= none32 || entry.header >= none32;
    if (wide) {
      append(extra, 1, 2);
      append(extra, 24, 2);
      append(extra, entry.bytes, 8);
      append(extra, entry.bytes, 8);
      append(extra, entry.header, 8);
    }
    append(out, directory_mark, 4);
    append(out, wide ? 45 : 20, 2);
    append(out, wide ? 45 : 20, 2);
    append(out, sizes_follow, 2);
    append(out, 0, 2 + 2 + 2);  // stored, no time
    append(out, entry.crc, 4);
    append(out, wide ? none32 : entry.bytes, 4);
    append(out, wide ? none32 : entry.bytes, 4);
    append(out, entry.name.size(), 2);
    append(out, extra.size(), 2);
    append(out, 0, 2 + 2 + 2 + 4);  // no comment, first disk, no attributes
    append(out, wide ? none32 : entry.header, 4);
    out += entry.name + extra;
  }
  const auto directory = at_, directory_bytes = static_cast<std::uint64_t>(out.size());
  append(out, end64_mark, 4);
  append(out, 44, 8);
  append(out, 45, 2);
  append(out, 45, 2);
  append(out, 0, 8);  // first disk
  append(out, entries_.size(), 8);
  append(out, entries_.size(), 8);
  append(out, directory_bytes, 8);
  append(out, directory, 8);
  append(out, end64_locator_mark, 4);
  append(out, 0, 4);
  append(out, directory + directory_bytes, 8);
  append(out, 1, 4);
  append(out, end_mark, 4);
  append(out, 0, 4);
  append(out, std::min<std::uint64_t>(entries_.size(), 0xFFFF), 2);
  append(out, std::min<std::uint64_t>(entries_.size(), 0xFFFF), 2);
  append(out, std::min<std::uint64_t>(directory_bytes, none32), 4);
  append(out, std::min<std::uint64_t>(directory, none32), 4);
  append(out, 0, 2);
  put(out);
  return at_;
}

ZipWriter::ZipWriter(fs::path path, std::uint64_t bytes)
    : path_(std::move(path)), unfinished_(path_.string() + "_tmp"), file_(File::create(unfinished_)), archive_(&file_) {
  try {
    if (bytes > 0) file_.reserve(bytes);
  } catch (const IoError&) {
    std::error_code ignored;
    fs::remove(unfinished_, ignored);
    throw;
  }
}

ZipWriter::~ZipWriter() {
  std::error_code ignored;
  if (!finished_) fs::remove(unfinished_, ignored);
}

void ZipWriter::finish() {
  archive_.finish();
  file_.sync();
  file_.close();
  rename_or_exchange(unfinished_, path_);
  finished_ = true;
  delete_all(unfinished_);
}

}  // namespace tessera::torch
