#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "framework/indexed/indexed_dataset.h"

namespace tessera::indexed {
namespace {

constexpr std::int64_t header_bytes = 34, length_bytes = 4, bound_bytes = 8;
constexpr std::int64_t numbers_at_once = 32 << 10;

std::string temporary(const std::string& name) { return name + ".unfinished"; }
std::string temporary_data(const std::string& prefix) { return temporary(prefix + ".bin"); }
std::string temporary_index(const std::string& prefix) { return temporary(prefix + ".idx"); }
std::string temporary_documents(const std::string& prefix) { return temporary(prefix + ".idx.documents"); }

files::AppendFile create(const std::string& name) {
  try {
    return files::AppendFile::create(name);
  } catch (const IoError& error) {
    throw ConfigError(text("cannot write '", name, "': ", error.what()));
  }
}

template <class Number>
void append(files::AppendFile& to, const Number& number) {
  to.append(std::string_view(reinterpret_cast<const char*>(&number), sizeof number));
}

// The numbers of bytes [first, last) of a file, in pieces that fit into memory.
template <class Number, class Take>
void read_in_pieces(const files::AppendFile& from, std::int64_t first, std::int64_t last, Take take) {
  constexpr auto step = numbers_at_once * static_cast<std::int64_t>(sizeof(Number));
  std::vector<Number> numbers;
  for (; first < last; first += step) {
    numbers.resize(static_cast<std::size_t>(std::min(step, last - first)) / sizeof(Number));
    from.read_at(first, std::as_writable_bytes(std::span(numbers)));
    take(std::span<const Number>(numbers));
  }
}

void rename_if_there(const std::string& from, const std::string& to) {
  if (std::filesystem::exists(from)) std::filesystem::rename(from, to);
}

void publish_files(const std::string& prefix) {
  if (std::filesystem::exists(temporary_data(prefix)))
    for (const auto& old : {prefix + ".idx", TokenChecksums::file_of(prefix)})
      std::filesystem::remove(old);  // so that a new .bin is never beside files of an old one
  rename_if_there(temporary_data(prefix), prefix + ".bin");
  rename_if_there(temporary_index(prefix), prefix + ".idx");
  std::filesystem::remove(temporary_documents(prefix));
  const auto folder = std::filesystem::path(prefix).parent_path();
  sync_folder(folder.empty() ? "." : folder);
}

}  // namespace

std::vector<std::filesystem::path> IndexedDatasetBuilder::files(const std::string& prefix) {
  return {prefix + ".bin", prefix + ".idx", temporary_data(prefix), temporary_index(prefix),
          temporary_documents(prefix)};
}

IndexedDatasetBuilder::IndexedDatasetBuilder(std::string prefix, TokenType type)
    : prefix_(std::move(prefix)), type_(type) {
  check_type();
  data_ = create(temporary_data(prefix_));
  lengths_ = create(temporary_index(prefix_));
  lengths_.append(std::string(header_bytes, '\0'));
  documents_of_index_ = create(temporary_documents(prefix_));
  append(documents_of_index_, std::int64_t{0});
}

IndexedDatasetBuilder::IndexedDatasetBuilder(std::string prefix, TokenType type, const State& state)
    : prefix_(std::move(prefix)),
      type_(type),
      sequences_(state.sequences),
      documents_(state.documents),
      tokens_(state.tokens),
      keep_(true) {
  check_type();
  data_ =
      files::AppendFile::continued(temporary_data(prefix_), state.tokens * static_cast<std::int64_t>(size_of(type_)));
  lengths_ = files::AppendFile::continued(temporary_index(prefix_), header_bytes + length_bytes * state.sequences);
  documents_of_index_ = files::AppendFile::continued(temporary_documents(prefix_), bound_bytes * (state.documents + 1));
  keep_ = false;
}

void IndexedDatasetBuilder::check_type() const {
  if (size_of(type_) > sizeof(std::int32_t))
    throw ConfigError(text(prefix_, ": ", name_of(type_),
                           " tokens are read but not written; make the data with the "
                           "model's tokenizer"));
}

IndexedDatasetBuilder::~IndexedDatasetBuilder() {
  if (keep_) return;
  std::error_code ignored;
  for (const auto* file : {&data_, &lengths_, &documents_of_index_})
    if (file->has_its_name()) std::filesystem::remove(file->path(), ignored);
}

void IndexedDatasetBuilder::add_sequence(std::span<const std::int32_t> tokens) {
  if (tokens.size() > std::numeric_limits<std::int32_t>::max())
    throw ConfigError(text(prefix_, ": a sequence has ", tokens.size(),
                           " tokens; at most 2147483647 fit into one, "
                           "split its document"));
  if (size_of(type_) == sizeof(std::int32_t)) {
    data_.append(std::as_bytes(tokens));
  } else {
    const auto item = size_of(type_);
    for (const auto token : tokens) data_.append(std::string_view(reinterpret_cast<const char*>(&token), item));
  }
  append(lengths_, static_cast<std::int32_t>(tokens.size()));
  tokens_ += static_cast<std::int64_t>(tokens.size());
  ++sequences_;
}

void IndexedDatasetBuilder::end_document() {
  append(documents_of_index_, sequences_);
  ++documents_;
}

void IndexedDatasetBuilder::add_documents(std::span<const std::byte> tokens, std::span<const std::int32_t> lengths,
                                          std::span<const std::int32_t> sequences) {
  data_.append(tokens);
  tokens_ += static_cast<std::int64_t>(tokens.size() / size_of(type_));
  add_index(lengths, sequences);
}

void IndexedDatasetBuilder::add_index(std::span<const std::int32_t> lengths, std::span<const std::int32_t> sequences) {
  lengths_.append(std::as_bytes(lengths));
  auto bound = sequences_;
  for (const auto count : sequences) append(documents_of_index_, bound += count);
  sequences_ += static_cast<std::int64_t>(lengths.size());
  documents_ += static_cast<std::int64_t>(sequences.size());
}

void IndexedDatasetBuilder::add(const IndexedDataset& other) {
  if (other.type() != type_)
    throw ConfigError(text(other.prefix(), ": holds ", name_of(other.type()), " tokens, but ", prefix_, " is made of ",
                           name_of(type_), "; both must come from the same tokenizer"));
  std::vector<std::int32_t> tokens;
  for (std::int64_t d = 0; d < other.documents(); ++d) {
    for (auto s = other.first_sequence(d); s < other.first_sequence(d + 1); ++s) {
      tokens.resize(static_cast<std::size_t>(other.length(s)));
      other.read(s, 0, tokens);
      add_sequence(tokens);
    }
    end_document();
  }
}

void IndexedDatasetBuilder::add(IndexedDatasetBuilder& other) {
  must(other.type_ == type_ && &other != this, "token files of one type are joined");
  other.flush();
  read_in_pieces<std::byte>(other.data_, 0, other.data_.size(), [&](auto bytes) { data_.append(bytes); });
  read_in_pieces<std::int32_t>(other.lengths_, header_bytes, header_bytes + length_bytes * other.sequences_,
                               [&](auto lengths) { lengths_.append(std::as_bytes(lengths)); });
  read_in_pieces<std::int64_t>(other.documents_of_index_, bound_bytes, bound_bytes * (other.documents_ + 1),
                               [&](auto bounds) {
                                 for (const auto bound : bounds) append(documents_of_index_, sequences_ + bound);
                               });
  sequences_ += other.sequences_;
  documents_ += other.documents_;
  tokens_ += other.tokens_;
}

void IndexedDatasetBuilder::flush() {
  for (auto* file : {&data_, &lengths_, &documents_of_index_}) file->flush();
}

IndexedDatasetBuilder::State IndexedDatasetBuilder::sync() {
  for (auto* file : {&data_, &lengths_, &documents_of_index_}) file->sync();
  return state();
}

void IndexedDatasetBuilder::go_back(const State& state) {
  data_.cut(state.tokens * static_cast<std::int64_t>(size_of(type_)));
  lengths_.cut(header_bytes + length_bytes * state.sequences);
  documents_of_index_.cut(bound_bytes * (state.documents + 1));
  sequences_ = state.sequences;
  documents_ = state.documents;
  tokens_ = state.tokens;
}

void IndexedDatasetBuilder::seal() {
  require_no_lost_pages();
  flush();
  lengths_.write_at(0, token_index_header(type_, sequences_, documents_ + 1));
  std::int64_t pointer = 0;
  read_in_pieces<std::int32_t>(lengths_, header_bytes, lengths_.size(), [&](auto lengths) {
    for (const auto length : lengths) {
      append(lengths_, pointer);
      pointer += length * static_cast<std::int64_t>(size_of(type_));
    }
  });
  read_in_pieces<std::byte>(documents_of_index_, 0, documents_of_index_.size(),
                            [&](auto bytes) { lengths_.append(bytes); });
  data_.sync();
  lengths_.sync();
}

bool IndexedDatasetBuilder::has_own_files() const {
  return data_.has_its_name() && lengths_.has_its_name() && documents_of_index_.has_its_name();
}

void IndexedDatasetBuilder::require_own_files() const {
  for (const auto* file : {&data_, &lengths_, &documents_of_index_}) file->require_its_name();
}

void IndexedDatasetBuilder::publish() {
  require_own_files();
  publish_files(prefix_);
  keep_ = true;
}

void IndexedDatasetBuilder::refuse_if_open(const std::string& prefix) {
  for (const auto& name : {temporary_data(prefix), temporary_index(prefix), temporary_documents(prefix)})
    files::AppendFile::refuse_if_open(name);
}

void IndexedDatasetBuilder::publish(const std::string& prefix) {
  refuse_if_open(prefix);
  publish_files(prefix);
}

void IndexedDatasetBuilder::finish() {
  seal();
  publish();
}

}  // namespace tessera::indexed
