#include "framework/preprocessing/text_chunks.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "framework/base/crc32c.h"
#include "framework/base/memory_limit.h"
#include "framework/parquet/parquet_lines.h"

namespace tessera::preprocessing {
namespace {

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r\n") == std::string_view::npos; }

// Behind the last line that is complete in `text`, which may continue; 0 if there is none. Only what is behind `from`
// is searched.
std::size_t end_of_lines(std::string_view text, std::size_t from) {
  if (const auto at = text.substr(from).rfind('\n'); at != std::string_view::npos) return from + at + 1;
  if (text.size() < 2) return 0;
  const auto at = text.substr(0, text.size() - 1).rfind('\r');  // one at the very end may belong to a \n
  return at == std::string_view::npos || at < from ? 0 : at + 1;
}

// Behind the last empty line between paragraphs.
std::size_t end_of_paragraphs(std::string_view text) {
  auto end = text.rfind('\n');
  while (end != std::string_view::npos && end > 0) {
    const auto before = text.rfind('\n', end - 1);
    const auto begin = before == std::string_view::npos ? 0 : before + 1;
    if (is_blank(text.substr(begin, end - begin))) return end + 1;
    end = before;
  }
  return 0;
}

}  // namespace

// A file that is one document, cut into its parts.
class ChunkReader::Whole {
 public:
  Whole(const std::string& name, bool may_be_cut, std::size_t most_uncut) {
    if (files::is_plain_file(name)) {
      file_ = std::make_unique<MappedFile>(name);
      all_ = {reinterpret_cast<const char*>(file_->bytes().data()), file_->bytes().size()};
    } else {  // its size decides where it is cut, so all of it has to be there
      const auto stream = files::open_input(name);
      for (std::size_t got = 1; got > 0;) {
        const auto before = held_.size();
        const auto more = std::max<std::size_t>(before, std::size_t{1} << 20U);
        require_memory(text("the text of ", name, ", which is one document,"),
                       static_cast<std::int64_t>(before + more));
        held_.resize(before + more);
        got = stream->read(held_.data() + before, held_.size() - before);
        held_.resize(before + got);
      }
      all_ = held_;
    }
    if (!may_be_cut && all_.size() > most_uncut)
      throw ConfigError(text(name == "-" ? "standard input" : name, ": the text has ", all_.size(),
                             " bytes, and this tokenizer takes a file as one text, of at most ", most_uncut,
                             " bytes; divide the file, or give --format blank-lines or json"));
    if (!all_.empty()) parts_ = may_be_cut ? files::cut_long_text(all_) : std::vector{all_};
    require_intact();
  }

  // Throws IoError if the file was truncated while it was read.
  void require_intact() const {
    if (file_ != nullptr) file_->require_intact();
  }

  // The part at byte `offset`; empty at the end.
  std::string_view part(std::int64_t offset) {
    const auto* at = all_.data() + offset;
    while (next_ < parts_.size() && parts_[next_].data() < at) ++next_;
    if (next_ == parts_.size()) return {};
    if (parts_[next_].data() != at) throw ConfigError("a part of a text begins elsewhere than before; was it changed?");
    return parts_[next_];
  }
  bool is_last(std::string_view part) const { return part.data() + part.size() == all_.data() + all_.size(); }

  // Gives back the mapped pages before `offset`, which are not read again.
  void drop(std::int64_t offset) {
    if (file_ == nullptr) return;
    const auto page = static_cast<std::int64_t>(::sysconf(_SC_PAGESIZE));
    if (const auto bytes = offset / page * page; bytes > 0)
      ::madvise(const_cast<std::byte*>(file_->bytes().data()), static_cast<std::size_t>(bytes), MADV_DONTNEED);
  }

 private:
  std::unique_ptr<MappedFile> file_;
  std::string held_;
  std::string_view all_;
  std::vector<std::string_view> parts_;
  std::size_t next_ = 0;
};

ChunkReader::ChunkReader(std::vector<TextInput> inputs, std::size_t chunk_bytes, bool count_lines,
                         std::size_t most_document)
    : inputs_(std::move(inputs)),
      chunk_bytes_(std::max<std::size_t>(chunk_bytes, 1)),
      count_lines_(count_lines),
      most_document_(most_document) {
  at_.input = -1;
}

ChunkReader::~ChunkReader() = default;

void ChunkReader::go_to(const TextPosition& position) {
  must(position.input <= static_cast<std::int64_t>(inputs_.size()), "a position is in one of the inputs");
  for (std::int64_t i = 0; i < std::min<std::int64_t>(position.input, static_cast<std::int64_t>(inputs_.size())); ++i)
    stored_before_ += files::size_of_input(inputs_[static_cast<std::size_t>(i)].name);
  at_.input = position.input - 1;
  at_.lines = position.lines;
  if (!open_next()) return;
  at_.offset = position.offset;
  if (stream_ == nullptr) return;
  if (!checked_) return stream_->skip(position.offset);
  std::string skipped;
  for (auto left = position.offset; left > 0;) {
    skipped.resize(static_cast<std::size_t>(std::min<std::int64_t>(left, 1 << 20)));
    const auto got = stream_->read(skipped.data(), skipped.size());
    at_.checksum = crc32c(std::string_view(skipped).substr(0, got), at_.checksum);
    left -= static_cast<std::int64_t>(got);
    if (got == 0) break;
  }
  if (at_.checksum != position.checksum)
    throw ConfigError(text("--resume: input '", inputs_[static_cast<std::size_t>(at_.input)].name,
                           "' does not begin with the ", position.offset,
                           " bytes that were read before; give the same input, or start again without --resume"));
}

bool ChunkReader::open_next() {
  stream_.reset();
  whole_.reset();
  rest_.clear();
  if (at_.input >= 0 && at_.input < static_cast<std::int64_t>(inputs_.size()))
    stored_before_ += files::size_of_input(inputs_[static_cast<std::size_t>(at_.input)].name);
  at_ = {at_.input + 1, 0, at_.lines, 0};
  ended_ = false;
  if (at_.input >= static_cast<std::int64_t>(inputs_.size())) return false;
  const auto& input = inputs_[static_cast<std::size_t>(at_.input)];
  checked_ = !files::is_plain_file(input.name);
  if (input.format == files::TextFormat::whole_file)
    whole_ = std::make_unique<Whole>(input.name, input.may_be_cut, most_document_);
  else
    stream_ =
        input.columns.empty() ? files::open_input(input.name) : parquet::open_parquet_lines(input.name, input.columns);
  return true;
}

std::string ChunkReader::shown_name(std::int64_t input) const {
  if (input < 0 || input >= static_cast<std::int64_t>(inputs_.size())) return "the inputs";
  const auto& name = inputs_[static_cast<std::size_t>(input)].name;
  return name == "-" ? "standard input" : name;
}

// An input that cannot be read is the user's to correct, unlike an output that cannot be written.
bool ChunkReader::next(TextChunk& chunk) {
  try {
    return take(chunk);
  } catch (const IoError& error) {
    throw ConfigError(error.what());
  } catch (const std::bad_alloc&) {
    throw out_of_memory(shown_name(at_.input));
  } catch (const std::length_error&) {
    throw out_of_memory(shown_name(at_.input));
  }
}

bool ChunkReader::take(TextChunk& chunk) {
  if (at_.input < 0 && !open_next()) return false;
  while (at_.input < static_cast<std::int64_t>(inputs_.size())) {
    chunk.input = at_.input;
    chunk.first_line = at_.lines;
    if (whole_ != nullptr ? next_part(chunk) : next_lines(chunk)) {
      at_.offset += static_cast<std::int64_t>(chunk.bytes.size());
      if (count_lines_) at_.lines += count_lines(chunk.bytes);
      if (checked_ && whole_ == nullptr) at_.checksum = crc32c(chunk.bytes, at_.checksum);
      chunk.end = at_;
      chunk.stored = stored_before_ + (stream_ != nullptr ? stream_->stored_position() : at_.offset);
      return true;
    }
    if (!open_next()) return false;
  }
  return false;
}

bool ChunkReader::next_part(TextChunk& chunk) {
  const auto part = whole_->part(at_.offset);
  if (part.empty()) return false;
  chunk.bytes.assign(part);
  whole_->require_intact();
  chunk.ends_document = whole_->is_last(part);
  whole_->drop(at_.offset);
  return true;
}

bool ChunkReader::fill(std::string& bytes) {
  const auto before = bytes.size();
  // Doubling, so that a very long line is not searched again and again.
  const auto more = std::min(std::max(chunk_bytes_, before), most_document_ + 1 - before);
  bytes.resize(before + more);
  const auto got = stream_->read(bytes.data() + before, more);
  bytes.resize(before + got);
  return got == more;
}

bool ChunkReader::next_lines(TextChunk& chunk) {
  chunk.ends_document = true;
  chunk.bytes.assign(rest_);
  rest_.clear();
  const bool paragraphs = inputs_[static_cast<std::size_t>(at_.input)].format == files::TextFormat::blank_lines;
  std::size_t end = 0;
  for (std::size_t searched = 0; end == 0 && !ended_;) {
    ended_ = !fill(chunk.bytes);
    if (ended_) break;
    end = paragraphs ? end_of_paragraphs(chunk.bytes) : end_of_lines(chunk.bytes, searched);
    searched = chunk.bytes.size() - 1;
    if (end == 0 && chunk.bytes.size() > most_document_)
      throw ConfigError(text(shown_name(at_.input), ": the ", paragraphs ? "paragraph" : "line", " at byte ",
                             at_.offset, " of the text has more than ", most_document_,
                             " bytes; divide it into documents"));
  }
  if (ended_) return !chunk.bytes.empty();
  rest_.assign(chunk.bytes, end, std::string::npos);
  chunk.bytes.resize(end);
  return true;
}

std::int64_t count_lines(std::string_view text) {
  auto lines = std::count(text.begin(), text.end(), '\n');
  for (auto at = text.find('\r'); at != std::string_view::npos; at = text.find('\r', at + 1))
    lines += at + 1 < text.size() && text[at + 1] == '\n' ? 0 : 1;
  const bool open = !text.empty() && text.back() != '\n' && text.back() != '\r';
  return lines + (open ? 1 : 0);
}

bool take_line(std::string_view& rest, std::string_view& line) {
  if (rest.empty()) return false;
  const auto* found = static_cast<const char*>(std::memchr(rest.data(), '\n', rest.size()));
  const auto newline = found == nullptr ? rest.size() : static_cast<std::size_t>(found - rest.data());
  const auto* back = static_cast<const char*>(std::memchr(rest.data(), '\r', newline));
  const auto end = back == nullptr ? newline : static_cast<std::size_t>(back - rest.data());
  line = rest.substr(0, end);
  const bool both = end + 1 == newline && newline < rest.size();
  rest.remove_prefix(std::min(rest.size(), end + (both ? 2 : 1)));
  return true;
}

bool take_paragraph(std::string_view& rest, std::string_view& paragraph, std::int64_t& lines,
                    std::int64_t& first_line) {
  const auto* begin = rest.data();
  const char* end = nullptr;  // of the last line that is not empty
  while (!rest.empty()) {
    const auto newline = std::min(rest.find('\n'), rest.size() - 1) + 1;
    const auto line = rest.substr(0, newline);
    if (is_blank(line) && end != nullptr) break;
    rest.remove_prefix(newline);
    ++lines;
    if (is_blank(line)) continue;
    if (end == nullptr) {
      begin = line.data();
      first_line = lines - 1;
    }
    end = line.data() + line.size();
  }
  if (end == nullptr) return false;
  paragraph = {begin, static_cast<std::size_t>(end - begin)};
  if (paragraph.back() == '\n') paragraph.remove_suffix(1);
  if (!paragraph.empty() && paragraph.back() == '\r') paragraph.remove_suffix(1);
  return true;
}

}  // namespace tessera::preprocessing
