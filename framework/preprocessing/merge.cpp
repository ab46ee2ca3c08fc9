#include "framework/preprocessing/merge.h"

#include <algorithm>
#include <deque>

#include "framework/base/files.h"
#include "framework/files/unfinished_file.h"
#include "framework/tokenizers/token_origin.h"

namespace tessera::preprocessing {
namespace {

constexpr std::int64_t bytes_at_once = std::int64_t{4} << 20U;

using Sources = std::deque<indexed::IndexedDataset>;

/// Numbers on their way to a file.
class Numbers {
 public:
  explicit Numbers(files::UnfinishedFile& file) : file_(file) {}
  template <class Number>
  void add(Number number) {
    buffer_.append(reinterpret_cast<const char*>(&number), sizeof number);
    if (static_cast<std::int64_t>(buffer_.size()) >= bytes_at_once) flush();
  }
  void flush() {
    file_.write(buffer_);
    buffer_.clear();
  }

 private:
  files::UnfinishedFile& file_;
  std::string buffer_;
};

// Sequences that follow each other in the file are copied together.
void copy_tokens(const indexed::IndexedDataset& from, files::UnfinishedFile& to,
                 const std::function<void(std::int64_t)>& copied) {
  const auto file = File::open(from.prefix() + ".bin");
  const auto item = static_cast<std::int64_t>(indexed::size_of(from.type()));
  std::vector<std::byte> buffer;
  const auto copy = [&](std::int64_t begin, std::int64_t end) {
    for (; begin < end; begin += bytes_at_once) {
      buffer.resize(static_cast<std::size_t>(std::min(bytes_at_once, end - begin)));
      from.verify_bytes(static_cast<std::uint64_t>(begin), static_cast<std::uint64_t>(begin) + buffer.size());
      file.read_at(static_cast<std::uint64_t>(begin), buffer);
      to.write({reinterpret_cast<const char*>(buffer.data()), buffer.size()});
      copied(static_cast<std::int64_t>(buffer.size()));
    }
  };
  std::int64_t begin = 0, end = 0;
  for (std::int64_t s = 0; s < from.sequences(); ++s) {
    const auto first = from.first_byte(s);
    if (first != end) {
      copy(begin, end);
      begin = first;
    }
    end = first + from.length(s) * item;
  }
  copy(begin, end);
}

void write_index(const Sources& sources, const MergeResult& made, files::UnfinishedFile& file) {
  file.write(indexed::token_index_header(made.type, made.sequences, made.documents + 1));
  Numbers out(file);
  const auto each_sequence = [&](auto add) {
    for (const auto& source : sources)
      for (std::int64_t s = 0; s < source.sequences(); ++s) add(source, s);
  };
  each_sequence([&](const auto& source, auto s) { out.add(static_cast<std::int32_t>(source.length(s))); });
  std::int64_t pointer = 0, before = 0;
  each_sequence([&](const auto& source, auto s) {
    out.add(pointer);
    pointer += source.length(s) * static_cast<std::int64_t>(indexed::size_of(made.type));
  });
  out.add(std::int64_t{0});
  for (const auto& source : sources) {
    for (std::int64_t d = 1; d <= source.documents(); ++d) out.add(before + source.first_sequence(d));
    before += source.sequences();
  }
  if (made.modes) each_sequence([&](const auto& source, auto s) { out.add(source.mode(s)); });
  out.flush();
}

// A dataset without sequences has no modes to miss.
void check_modes(const Sources& sources, bool multimodal, MergeResult& made) {
  const indexed::IndexedDataset *with = nullptr, *without = nullptr;
  for (const auto& source : sources)
    if (source.sequences() > 0) (source.has_modes() ? with : without) = &source;
  if (without != nullptr && multimodal)
    throw ConfigError(text(without->prefix(), ".idx: has no sequence modes, which --multimodal needs"));
  if (without != nullptr && with != nullptr)
    throw ConfigError(text(with->prefix(), ".idx has sequence modes and ", without->prefix(),
                           ".idx has none; merge datasets of one kind"));
  made.modes = with != nullptr;
}

}  // namespace

MergeResult merge_datasets(const MergeRequest& request,
                           const std::function<void(std::int64_t done, std::int64_t all)>& progress) {
  Sources sources;
  std::vector<std::filesystem::path> inputs;
  MergeResult made;
  std::int64_t bytes = 0, done = 0;
  for (const auto& prefix : request.prefixes) {
    const auto& source = sources.emplace_back(prefix);
    if (source.type() != sources.front().type())
      throw ConfigError(text(prefix, ": holds ", indexed::name_of(source.type()), " tokens, but ",
                             sources.front().prefix(), " holds ", indexed::name_of(sources.front().type()),
                             "; merge datasets of one tokenizer"));
    for (const auto* suffix : {".bin", ".idx"}) inputs.emplace_back(prefix + suffix);
    made.documents += source.documents();
    made.sequences += source.sequences();
    made.tokens += source.tokens();
  }
  must(!sources.empty(), "there is a dataset to merge");
  tokenizers::must_have_one_origin(request.prefixes);
  made.type = sources.front().type();
  bytes = made.tokens * static_cast<std::int64_t>(indexed::size_of(made.type));
  check_modes(sources, request.multimodal, made);
  refuse_overwriting(inputs, indexed::IndexedDatasetBuilder::files(request.output_prefix));
  files::UnfinishedFile data(request.output_prefix + ".bin"), index(request.output_prefix + ".idx");
  for (const auto& source : sources)
    copy_tokens(source, data, [&](std::int64_t count) {
      done += count;
      if (progress) progress(done, bytes);
    });
  write_index(sources, made, index);
  for (const auto& old : {request.output_prefix + ".idx", indexed::TokenChecksums::file_of(request.output_prefix)})
    std::filesystem::remove(old);  // so that a new .bin is never beside files of an old one
  data.finish();
  index.finish();
  tokenizers::write_merged_origin(request.prefixes, request.output_prefix);
  return made;
}

}  // namespace tessera::preprocessing
