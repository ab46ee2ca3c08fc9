#include "framework/files/input_stream.h"

#include <fcntl.h>
#include <glob.h>
#include <lzma.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <new>
#include <string_view>

#include "framework/base/error.h"

namespace tessera::files {
namespace {

constexpr std::size_t stored_bytes_at_once = std::size_t{256} << 10U;
constexpr std::uint64_t most_memory_of_xz = std::uint64_t{256} << 20U;  // the highest preset of xz needs 65 MiB

enum class Compression { none, gzip, zstandard, xz };

const char* name_of(Compression compression) {
  switch (compression) {
    case Compression::gzip:
      return "gzip";
    case Compression::zstandard:
      return "Zstandard";
    case Compression::xz:
      return "xz";
    case Compression::none:
      break;
  }
  return "uncompressed";
}

// A skippable frame of Zstandard begins with a number from 0x184D2A50 to 0x184D2A5F.
bool is_skippable_frame(std::string_view begin) {
  return begin.size() >= 4 && (static_cast<unsigned char>(begin[0]) & 0xF0U) == 0x50 &&
         begin.substr(1, 3) == "\x2A\x4D\x18";
}

// None of these begins a text: they hold bytes that are not UTF-8, or a control character.
Compression by_content(std::string_view begin) {
  const auto is = [&](std::string_view magic) { return begin.substr(0, magic.size()) == magic; };
  if (is("\x1F\x8B")) return Compression::gzip;
  if (is("\x28\xB5\x2F\xFD") || is_skippable_frame(begin)) return Compression::zstandard;
  if (is(std::string_view("\xFD\x37\x7A\x58\x5A\x00", 6))) return Compression::xz;
  return Compression::none;
}

Compression by_name(const std::string& name) {
  const auto ending = std::filesystem::path(name).extension();
  return ending == ".gz"    ? Compression::gzip
         : ending == ".zst" ? Compression::zstandard
         : ending == ".xz"  ? Compression::xz
                            : Compression::none;
}

std::string shown(const std::string& name) { return name == "-" ? "standard input" : name; }

// The stored bytes.
class Stored {
 public:
  explicit Stored(const std::string& name) : name_(shown(name)) {
    if (name == "-") {
      descriptor_ = ::dup(STDIN_FILENO);
    } else {
      std::error_code ignored;
      if (std::filesystem::is_directory(name, ignored))
        throw ConfigError(text("the input '", name, "' is a folder; give a file, or a pattern such as '", name,
                               "/*.jsonl' in quotes"));
      descriptor_ = ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
    }
    if (descriptor_ < 0)
      throw ConfigError(text("the input '", name_, "' cannot be read: cannot be opened: ", std::strerror(errno)));
    struct stat facts {};
    if (::fstat(descriptor_, &facts) == 0 && S_ISREG(facts.st_mode)) size_ = facts.st_size;
    ::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_SEQUENTIAL);  // only a hint, pipes refuse it
    const auto first = read_some(ahead_.data(), ahead_.size());
    held_ = std::string_view(ahead_.data(), first);
  }
  Stored(const Stored&) = delete;
  Stored& operator=(const Stored&) = delete;
  ~Stored() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  std::string_view begin() const { return held_; }

  std::size_t read(char* into, std::size_t size) {
    std::size_t done = std::min(size, held_.size());
    std::copy_n(held_.data(), done, into);
    held_.remove_prefix(done);
    if (done < size) done += read_some(into + done, size - done);
    position_ += static_cast<std::int64_t>(done);
    return done;
  }

  void skip(std::int64_t offset) {
    struct stat facts {};
    if (::fstat(descriptor_, &facts) != 0 || !S_ISREG(facts.st_mode) || facts.st_size < offset)
      throw ConfigError(
          text(name_, ": has fewer than ", offset, " bytes, which were read before; is it another file?"));
    if (::lseek(descriptor_, static_cast<off_t>(offset), SEEK_SET) < 0)
      throw ConfigError(text(name_, ": cannot be read from byte ", offset, " on: ", std::strerror(errno)));
    held_ = {};
    position_ = offset;
  }

  std::int64_t position() const { return position_; }
  const std::string& name() const { return name_; }

 private:
  std::size_t read_some(char* into, std::size_t size) {
    std::size_t done = 0;
    while (done < size) {
      const auto got = ::read(descriptor_, into + done, size - done);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw ConfigError(text("the input '", name_, "' cannot be read: ", std::strerror(errno)));
      if (got == 0) break;
      done += static_cast<std::size_t>(got);
    }
    if (done < size) check_end();
    return done;
  }

  // At the end of a regular file. What was read could be the begin of a line, or a whole line too few.
  void check_end() const {
    struct stat facts {};
    if (::fstat(descriptor_, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_size < size_)
      throw ConfigError(text("the input '", name_, "' was truncated from ", size_, " to ", facts.st_size,
                             " bytes while it was read; give a file that nothing changes"));
  }

  std::string name_;
  int descriptor_ = -1;
  std::int64_t size_ = 0;  // of a regular file when it was opened
  std::array<char, 8> ahead_{};
  std::string_view held_;  // of ahead_
  std::int64_t position_ = 0;
};

class PlainStream final : public InputStream {
 public:
  explicit PlainStream(std::unique_ptr<Stored> from, bool seekable) : from_(std::move(from)), seekable_(seekable) {}
  std::size_t read(char* into, std::size_t size) override { return from_->read(into, size); }
  std::int64_t stored_position() const override { return from_->position(); }
  void skip(std::int64_t offset) override { return seekable_ ? from_->skip(offset) : InputStream::skip(offset); }

 private:
  std::unique_ptr<Stored> from_;
  bool seekable_;
};

// What the three decompressors share: a buffer of stored bytes.
class CompressedStream : public InputStream {
 public:
  explicit CompressedStream(std::unique_ptr<Stored> from) : from_(std::move(from)), buffer_(stored_bytes_at_once) {}

  std::size_t read(char* into, std::size_t size) final {
    std::size_t done = 0;
    while (done < size && !ended_) {
      if (input_.empty()) {
        input_ = {buffer_.data(), from_->read(buffer_.data(), buffer_.size())};
        last_ = input_.empty();
      }
      const auto before = done;
      done += decompress(input_, into + done, size - done, last_);
      if (last_ && done == before && !ended_) refuse("is cut off");
    }
    return done;
  }
  std::int64_t stored_position() const final { return from_->position(); }

 protected:
  /// Takes bytes from the front of `input`, writes to out[0 .. size), returns how many it wrote. `last`: no more input
  /// comes. Sets ended_ behind the last byte.
  virtual std::size_t decompress(std::string_view& input, char* out, std::size_t size, bool last) = 0;
  [[noreturn]] void refuse(const std::string& what) const {
    throw ConfigError(text(from_->name(), ": the compressed data ", what, " (near byte ", from_->position(),
                           " of the file); make or copy the file again"));
  }
  bool ended_ = false;

 private:
  std::unique_ptr<Stored> from_;
  std::vector<char> buffer_;
  std::string_view input_;
  bool last_ = false;
};

// Several gzip members may follow each other, and zeros the last one, as Python's gzip reads it.
class GzipStream final : public CompressedStream {
 public:
  explicit GzipStream(std::unique_ptr<Stored> from) : CompressedStream(std::move(from)) {
    if (::inflateInit2(&state_, 15 + 16) != Z_OK) throw ConfigError("zlib cannot be started: not enough memory");
  }
  ~GzipStream() override { ::inflateEnd(&state_); }

 private:
  std::size_t decompress(std::string_view& input, char* out, std::size_t size, bool last) override {
    if (between_) {
      while (!input.empty() && input.front() == '\0') input.remove_prefix(1);
      if (input.empty()) {
        ended_ = last;
        return 0;
      }
      ::inflateReset(&state_);
      between_ = false;
    }
    state_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(input.data()));
    state_.avail_in = static_cast<uInt>(input.size());
    state_.next_out = reinterpret_cast<Bytef*>(out);
    state_.avail_out = static_cast<uInt>(std::min<std::size_t>(size, 1U << 30U));
    const auto room = state_.avail_out;
    const int result = ::inflate(&state_, Z_NO_FLUSH);
    input.remove_prefix(input.size() - state_.avail_in);
    between_ = result == Z_STREAM_END;
    if (result == Z_MEM_ERROR) throw std::bad_alloc();
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
      refuse(text("is damaged: ", state_.msg != nullptr ? state_.msg : "not gzip"));
    return room - state_.avail_out;
  }

  z_stream state_{};
  bool between_ = false;  // two members
};

class ZstandardStream final : public CompressedStream {
 public:
  explicit ZstandardStream(std::unique_ptr<Stored> from)
      : CompressedStream(std::move(from)), state_(::ZSTD_createDStream()) {
    if (state_ == nullptr) throw ConfigError("zstd cannot be started: not enough memory");
  }
  ~ZstandardStream() override { ::ZSTD_freeDStream(state_); }

 private:
  std::size_t decompress(std::string_view& input, char* out, std::size_t size, bool last) override {
    if (last && frame_ended_) {
      ended_ = true;
      return 0;
    }
    ZSTD_inBuffer from{input.data(), input.size(), 0};
    ZSTD_outBuffer to{out, size, 0};
    const auto left = ::ZSTD_decompressStream(state_, &to, &from);
    if (::ZSTD_isError(left) != 0) refuse_frame(left);
    input.remove_prefix(from.pos);
    frame_ended_ = left == 0;
    ended_ = last && frame_ended_;
    return to.pos;
  }

  [[noreturn]] void refuse_frame(std::size_t result) const {
    switch (::ZSTD_getErrorCode(result)) {
      case ZSTD_error_frameParameter_windowTooLarge:
        refuse("needs a window of more than 128 MiB; compress without --long, or with --long=27");
      case ZSTD_error_prefix_unknown:
        refuse("has bytes that are no Zstandard frame");
      case ZSTD_error_memory_allocation:
        throw std::bad_alloc();
      default:
        refuse(text("is damaged: ", ::ZSTD_getErrorName(result)));
    }
  }

  ZSTD_DStream* state_;
  bool frame_ended_ = false;
};

class XzStream final : public CompressedStream {
 public:
  explicit XzStream(std::unique_ptr<Stored> from) : CompressedStream(std::move(from)) {
    if (::lzma_stream_decoder(&state_, most_memory_of_xz, LZMA_CONCATENATED) != LZMA_OK)
      throw ConfigError("liblzma cannot be started: not enough memory");
  }
  ~XzStream() override { ::lzma_end(&state_); }

 private:
  std::size_t decompress(std::string_view& input, char* out, std::size_t size, bool last) override {
    state_.next_in = reinterpret_cast<const std::uint8_t*>(input.data());
    state_.avail_in = input.size();
    state_.next_out = reinterpret_cast<std::uint8_t*>(out);
    state_.avail_out = size;
    const auto result = ::lzma_code(&state_, last ? LZMA_FINISH : LZMA_RUN);
    input.remove_prefix(input.size() - state_.avail_in);
    ended_ = result == LZMA_STREAM_END;
    if (result == LZMA_MEMLIMIT_ERROR) refuse("needs more than 256 MiB of memory; compress with a smaller dictionary");
    if (result == LZMA_MEM_ERROR) throw std::bad_alloc();
    if (result != LZMA_OK && result != LZMA_STREAM_END && result != LZMA_BUF_ERROR) refuse("is damaged");
    return size - state_.avail_out;
  }

  lzma_stream state_ = LZMA_STREAM_INIT;
};

bool is_regular(const std::string& name) {
  std::error_code ignored;
  return name != "-" && std::filesystem::is_regular_file(name, ignored);
}

}  // namespace

void InputStream::skip(std::int64_t offset) {
  std::vector<char> dropped(stored_bytes_at_once);
  while (offset > 0) {
    const auto got =
        read(dropped.data(), static_cast<std::size_t>(std::min<std::int64_t>(offset, stored_bytes_at_once)));
    if (got == 0) throw ConfigError(text("an input has ", offset, " bytes less than were read before"));
    offset -= static_cast<std::int64_t>(got);
  }
}

std::unique_ptr<InputStream> open_input(const std::string& name) {
  auto stored = std::make_unique<Stored>(name);
  const auto found = by_content(stored->begin()), told = by_name(name);
  if (told != Compression::none && told != found)
    throw ConfigError(text(name, ": is not ", name_of(told), ", as its name says, but ",
                           found == Compression::none ? "something else" : name_of(found),
                           "; rename it or make it again"));
  switch (found) {
    case Compression::gzip:
      return std::make_unique<GzipStream>(std::move(stored));
    case Compression::zstandard:
      return std::make_unique<ZstandardStream>(std::move(stored));
    case Compression::xz:
      return std::make_unique<XzStream>(std::move(stored));
    case Compression::none:
      break;
  }
  return std::make_unique<PlainStream>(std::move(stored), is_regular(name));
}

bool is_read_once(const std::string& name) {
  using std::filesystem::file_type;
  std::error_code ignored;
  const auto type = std::filesystem::status(name, ignored).type();
  return name == "-" || type == file_type::fifo || type == file_type::character || type == file_type::socket;
}

void check_input(const std::string& name) {
  if (!is_read_once(name)) open_input(name);
}

void refuse_read_once(const std::string& name, const std::string& reason) {
  if (!is_read_once(name)) return;
  throw ConfigError(text(reason, ", and ", name == "-" ? "standard input" : text("'", name, "' (a pipe or a device)"),
                         " can be read only once; give a file"));
}

void refuse_compressed(const std::string& name, std::string_view begin) {
  if (const auto found = by_content(begin); found != Compression::none)
    throw ConfigError(text(name, ": is compressed (", name_of(found), "); unpack it first"));
}

bool is_plain_file(const std::string& name) {
  return is_regular(name) && by_content(Stored(name).begin()) == Compression::none;
}

std::int64_t size_of_input(const std::string& name) {
  std::error_code error;
  const auto size = is_regular(name) ? std::filesystem::file_size(name, error) : 0;
  return error ? 0 : static_cast<std::int64_t>(size);
}

std::string without_compression_suffix(const std::string& name) {
  return by_name(name) == Compression::none ? name : std::filesystem::path(name).replace_extension().string();
}

std::vector<std::string> expand_patterns(const std::vector<std::string>& names) {
  std::vector<std::string> all;
  for (const auto& name : names) {
    std::error_code ignored;
    if (name.find_first_of("*?[") == std::string::npos || std::filesystem::exists(name, ignored)) {
      all.push_back(name);
      continue;
    }
    glob_t found{};
    const int result = ::glob(name.c_str(), 0, nullptr, &found);
    for (std::size_t i = 0; result == 0 && i < found.gl_pathc; ++i) all.emplace_back(found.gl_pathv[i]);
    ::globfree(&found);
    if (result != 0) throw ConfigError(text("--input '", name, "' matches no file; check the pattern and the folder"));
  }
  return all;
}

}  // namespace tessera::files
